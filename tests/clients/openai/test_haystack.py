"""Haystack's `OpenAIChatGenerator`, alone and in a pipeline."""

import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from haystack import Pipeline
from haystack.components.builders import ChatPromptBuilder
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

PACKAGES = ["haystack-ai", "openai"]
MESSAGES = [ChatMessage.from_user(QUESTION)]


class Mood(pydantic.BaseModel):
    is_positive: bool


def generator(**options):
    options = {"max_tokens": 40, **options}
    key = Secret.from_token(API_KEY)
    return OpenAIChatGenerator(api_key=key, model=MODEL, api_base_url=BASE_URL, generation_kwargs=options)


def test_chat():
    assert generator().run(MESSAGES)["replies"][0].text


def test_stream():
    chunks = []
    generator().run(MESSAGES, streaming_callback=chunks.append)
    assert "".join(chunk.content for chunk in chunks)


def test_pipeline():
    pipeline = Pipeline()
    pipeline.add_component("ask", ChatPromptBuilder([ChatMessage.from_user("Is this positive? {{ text }}")]))
    pipeline.add_component("model", generator())
    pipeline.connect("ask.prompt", "model.messages")
    assert pipeline.run({"ask": {"text": "I love it."}})["model"]["replies"][0].text


def test_structured_output():
    reply = generator(response_format=Mood).run(MESSAGES)["replies"][0]
    Mood.model_validate_json(reply.text)


def test_tools():
    def weather(rainy: bool) -> str:
        """Says the weather."""
        return "rain" if rainy else "sun"

    tool = create_tool_from_function(weather)
    call = generator(tool_choice="required").run(MESSAGES, tools=[tool])["replies"][0].tool_calls[0]
    assert tool.invoke(**call.arguments) in ("rain", "sun")
