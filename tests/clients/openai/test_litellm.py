"""LiteLLM as a library."""

import json

import litellm
import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION

PACKAGES = ["litellm"]
TO = {"model": f"openai/{MODEL}", "api_base": BASE_URL, "api_key": API_KEY, "max_tokens": 40}
MESSAGES = [{"role": "user", "content": QUESTION}]


class Mood(pydantic.BaseModel):
    is_positive: bool


def test_chat():
    assert litellm.completion(messages=MESSAGES, **TO).choices[0].message.content


def test_hosted_vllm():
    to = {**TO, "model": f"hosted_vllm/{MODEL}"}
    assert litellm.completion(messages=MESSAGES, **to).choices[0].message.content


def test_stream():
    assert list(litellm.completion(messages=MESSAGES, stream=True, **TO))


def test_batch():
    replies = litellm.batch_completion(messages=[MESSAGES] * 5, **TO)
    assert [bool(reply.choices) for reply in replies] == [True] * 5


def test_structured_output():
    reply = litellm.completion(messages=MESSAGES, response_format=Mood, **TO)
    Mood.model_validate_json(reply.choices[0].message.content)


def test_tools():
    fields = {"rainy": {"type": "boolean"}}
    parameters = {"type": "object", "properties": fields, "required": ["rainy"]}
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    reply = litellm.completion(messages=MESSAGES, tools=[tool], tool_choice="required", **TO)
    assert json.loads(reply.choices[0].message.tool_calls[0].function.arguments)["rainy"] in (True, False)
