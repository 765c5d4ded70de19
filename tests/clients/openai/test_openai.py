"""OpenAI's Python library; `tests/python/test_openai.py` tries more of it."""

import asyncio
import math
from typing import Literal

import openai
import pydantic
from attempts import API_KEY, BASE_URL, EMBEDDER, MODEL, QUESTION, needs_embedder

PACKAGES = ["openai"]
client = openai.OpenAI(base_url=BASE_URL, api_key=API_KEY)
MESSAGES = [{"role": "user", "content": QUESTION}]


class Mood(pydantic.BaseModel):
    is_positive: bool


def test_chat():
    assert client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=4).choices[0].message.content


def test_stream():
    chunks = list(client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=4, stream=True))
    assert chunks[-1].choices[0].finish_reason in ("stop", "length")


def test_structured_output():
    reply = client.chat.completions.parse(model=MODEL, messages=MESSAGES, response_format=Mood, max_tokens=40)
    assert isinstance(reply.choices[0].message.parsed, Mood)


def test_loop_of_rows():
    async def run():
        async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY) as rows:
            one = lambda row: rows.chat.completions.create(  # noqa: E731
                model=MODEL, messages=[{"role": "user", "content": f"{QUESTION} {row}"}], max_tokens=4
            )
            return await asyncio.gather(*(one(row) for row in range(20)))

    assert len(asyncio.run(run())) == 20


def test_models():
    assert MODEL in [model.id for model in client.models.list()]


def test_several_answers():
    assert len(client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=4, n=2).choices) == 2


class Weather(pydantic.BaseModel):
    """The weather of a city."""

    city: Literal["Oslo", "Rome"]


TOOL = openai.pydantic_function_tool(Weather)


def test_tools():
    asked = {"model": MODEL, "tools": [TOOL], "max_tokens": 60}
    reply = client.chat.completions.parse(messages=MESSAGES, tool_choice="required", **asked)
    message = reply.choices[0].message
    call = message.tool_calls[0]
    assert isinstance(call.function.parsed_arguments, Weather)
    result = {"role": "tool", "tool_call_id": call.id, "content": "rain"}
    history = [*MESSAGES, message.model_dump(exclude_none=True), result]
    assert client.chat.completions.create(messages=history, **asked).choices[0].finish_reason


def test_tools_in_a_stream():
    options = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 60}
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, **options) as stream:
        message = stream.get_final_completion().choices[0].message
    assert isinstance(message.tool_calls[0].function.parsed_arguments, Weather)


def test_functions_as_they_were_before_tools():
    function = {"name": "Weather", "parameters": Weather.model_json_schema()}
    asked = {"model": MODEL, "functions": [function], "max_tokens": 60}
    named = {"function_call": {"name": "Weather"}, "temperature": 0, **asked}
    message = client.chat.completions.create(messages=MESSAGES, **named).choices[0].message
    assert message.tool_calls is None and message.function_call.name == "Weather"
    assert Weather.model_validate_json(message.function_call.arguments)
    chunks = client.chat.completions.create(messages=MESSAGES, stream=True, **named)
    pieces = [chunk.choices[0].delta.function_call for chunk in chunks if chunk.choices]
    assert "".join(piece.arguments or "" for piece in pieces if piece) == message.function_call.arguments
    result = {"role": "function", "name": "Weather", "content": "rain"}
    history = [*MESSAGES, message.model_dump(exclude_none=True), result]
    assert client.chat.completions.create(messages=history, **asked).choices[0].finish_reason


def test_best_of():
    asked = {"model": MODEL, "prompt": QUESTION, "max_tokens": 4, "n": 2, "best_of": 4}
    reply = client.completions.create(**asked)
    assert len(reply.choices) == 2 and reply.usage.completion_tokens >= 4


def test_responses():
    response = client.responses.create(model=MODEL, input=QUESTION, max_output_tokens=4)
    assert response.output_text and response.usage.output_tokens


@needs_embedder
def test_embeddings():
    texts = ["A refund is paid.", "The parcel came.", "A refund is paid."]
    # Without a format it asks for base64, and reads that.
    vectors = [one.embedding for one in client.embeddings.create(model=EMBEDDER, input=texts).data]
    assert len({len(vector) for vector in vectors}) == 1 and vectors[0] == vectors[2] != vectors[1]
    for options in ({"encoding_format": "float"}, {"dimensions": len(vectors[0])}):
        same = client.embeddings.create(model=EMBEDDER, input=texts, **options).data
        assert all(math.dist(one.embedding, vector) < 1e-5 for one, vector in zip(same, vectors))
    (short,) = client.embeddings.create(model=EMBEDDER, input=texts[0], dimensions=32).data
    assert len(short.embedding) == 32 and math.isclose(math.hypot(*short.embedding), 1, abs_tol=1e-3)


def test_tools_of_responses():
    tool = {"type": "function", "name": "Weather", "parameters": Weather.model_json_schema()}
    options = {"tools": [tool], "tool_choice": {"type": "function", "name": "Weather"}, "max_output_tokens": 60}
    call = client.responses.create(model=MODEL, input=QUESTION, **options).output[0]
    Weather.model_validate_json(call.arguments)
    with client.responses.stream(model=MODEL, input=QUESTION, **options) as stream:
        streamed = stream.get_final_response().output[0]
    assert streamed.arguments == call.arguments
