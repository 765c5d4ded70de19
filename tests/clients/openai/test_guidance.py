"""guidance's `OpenAI`, and its `VLLMModel`, which sends whole grammars."""

import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from guidance import assistant, gen, json, select, user
from guidance.models import OpenAI
from guidance.models.experimental import VLLMModel

PACKAGES = ["guidance", "openai"]


class Mood(pydantic.BaseModel):
    is_positive: bool


def said(model, what):
    with user():
        model += QUESTION
    with assistant():
        model += what
    return model["said"]


def openai():
    return OpenAI(MODEL, api_key=API_KEY, base_url=BASE_URL, echo=False)


def vllm():
    return VLLMModel(MODEL, api_key=API_KEY, base_url=BASE_URL, echo=False)


def test_gen():
    assert said(openai(), gen("said", max_tokens=8))


def test_json():
    Mood.model_validate_json(said(openai(), json("said", schema=Mood)))


def test_select_by_vllm():
    assert said(vllm(), select(["yes", "no"], name="said")) in ("yes", "no")


def test_regex_by_vllm():
    assert len(said(vllm(), gen("said", regex="[0-9]{4}"))) == 4
