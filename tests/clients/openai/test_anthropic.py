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


def test_agent():
    """What coding agents send: betas, marks of caches, thinking, thoughts, more tokens than the operator allows."""
    cached = {"cache_control": {"type": "ephemeral"}}
    thoughts = [{"type": "thinking", "thinking": "Love.", "signature": "c2ln"}, {"type": "redacted_thinking", "data": "c2ln"}]
    settings = {
        "model": MODEL,
        "betas": ["interleaved-thinking-2025-05-14", "context-management-2025-06-27"],
        "thinking": {"type": "enabled", "budget_tokens": 16_000},
        "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
        "system": [{"type": "text", "text": "Be brief.", **cached}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
            {"role": "assistant", "content": [*thoughts, {"type": "text", "text": "yes"}]},
            {"role": "user", "content": [{"type": "text", "text": QUESTION, **cached}]},
        ],
    }
    ask = {**settings, "metadata": {"user_id": "user_1_session_2"}}
    # Without a stream the client itself allows no more.
    reply = client.beta.messages.with_raw_response.create(max_tokens=20_000, **ask)
    assert reply.headers["x-relserve-ignored-fields"] == "thinking, max_tokens"
    message = reply.parse()
    assert message.content[0].text
    with client.beta.messages.stream(max_tokens=32_000, **ask) as stream:
        assert stream.get_final_message().content[0].text
    counted = client.beta.messages.count_tokens(**settings)
    assert counted.input_tokens == message.usage.input_tokens + message.usage.cache_read_input_tokens


def test_errors():
    try:
        client.messages.create(**ASK, thinking={"type": "enabled", "budget_tokens": 1024})
    except anthropic.BadRequestError as error:
        assert error.body["error"]["type"] == "invalid_request_error"
    else:
        raise AssertionError("a budget above the limit was taken")
    try:
        anthropic.Anthropic(base_url=BASE_URL.removesuffix("/v1"), api_key="rs-no").messages.create(**ASK)
    except anthropic.AuthenticationError:
        pass
    else:
        raise AssertionError("an unknown key was taken")
