"""outlines, over OpenAI's client; its grammars for vLLM go as `structured_outputs`."""

from typing import Literal

import openai
import outlines
import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION

PACKAGES = ["outlines", "openai"]
client = openai.OpenAI(base_url=BASE_URL, api_key=API_KEY)


class Mood(pydantic.BaseModel, extra="forbid"):
    is_positive: bool


def test_json():
    model = outlines.from_openai(client, MODEL)
    assert Mood.model_validate_json(model(QUESTION, Mood, max_tokens=40))


def test_choice_as_of_vllm():
    model = outlines.from_vllm(client, MODEL)
    assert model(QUESTION, Literal["yes", "no"], max_tokens=4) in ("yes", "no")


def test_regex_as_of_vllm():
    model = outlines.from_vllm(client, MODEL)
    assert model(QUESTION, outlines.regex("(yes|no), [0-9]{2}"), max_tokens=12)[-2:].isdigit()
