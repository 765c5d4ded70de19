"""instructor, in its default mode, which asks with tools, and in `JSON_SCHEMA`."""

import instructor
import openai
import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION

PACKAGES = ["instructor", "openai"]
ASKED = {"model": MODEL, "messages": [{"role": "user", "content": QUESTION}], "max_retries": 0, "max_tokens": 40}


# Without other properties: the demo model would write some and never end.
class Mood(pydantic.BaseModel, extra="forbid"):
    is_positive: bool


def client(**mode):
    return instructor.from_openai(openai.OpenAI(base_url=BASE_URL, api_key=API_KEY), **mode)


def test_json_schema():
    assert isinstance(client(mode=instructor.Mode.JSON_SCHEMA).create(response_model=Mood, **ASKED), Mood)


def test_default_mode():
    assert isinstance(client().create(response_model=Mood, **ASKED), Mood)
