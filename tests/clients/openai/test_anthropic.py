"""Anthropic's own client: `/v1/messages` of the same server."""

import anthropic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION

PACKAGES = ["anthropic"]
client = anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key=API_KEY)
WEATHER = {
    "name": "weather",
    "description": "The weather of a city.",
    "input_schema": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}}, "required": ["city"]},
}
ASK = {"model": MODEL, "max_tokens": 40, "messages": [{"role": "user", "content": QUESTION}]}


def test_message():
    message = client.messages.create(system="Be brief.", **ASK)
    assert message.content[0].text and message.stop_reason in ("end_turn", "max_tokens")
    assert message.usage.output_tokens > 0


def test_stream():
    with client.messages.stream(**ASK) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert text and message.content[0].text == text
    assert message.usage.output_tokens > 0


def test_tools():
    tools = {"tools": [WEATHER], "tool_choice": {"type": "tool", "name": "weather"}}
    message = client.messages.create(**ASK, **tools)
    call = message.content[0]
    assert message.stop_reason == "tool_use" and call.name == "weather" and call.input["city"] in ("Oslo", "Rome")
    with client.messages.stream(**ASK, **tools) as stream:
        assert stream.get_final_message().content[0].input["city"] in ("Oslo", "Rome")
    messages = [
        *ASK["messages"],
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}]},
    ]
    after = client.messages.create(**{**ASK, "messages": messages}, tools=[WEATHER], tool_choice={"type": "none"})
    assert after.content[0].text


def test_count_tokens():
    counted = client.messages.count_tokens(model=MODEL, messages=ASK["messages"])
    message = client.messages.create(**ASK)
    assert counted.input_tokens == message.usage.input_tokens + message.usage.cache_read_input_tokens


def test_errors():
    try:
        client.messages.create(**ASK, thinking={"type": "enabled", "budget_tokens": 1024})
    except anthropic.BadRequestError as error:
        assert error.body["error"]["type"] == "invalid_request_error"
    else:
        raise AssertionError("thinking was taken")
    try:
        anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key="rs-no").messages.create(**ASK)
    except anthropic.AuthenticationError:
        pass
    else:
        raise AssertionError("an unknown key was taken")
