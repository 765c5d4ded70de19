"""AG2's agents by chat completions and by responses."""

import asyncio

import pydantic
from ag2 import Agent
from ag2.config import OpenAIConfig, OpenAIResponsesConfig
from attempts import API_KEY, BASE_URL, MODEL, QUESTION

PACKAGES = ["ag2", "openai"]
TO = {"model": MODEL, "base_url": BASE_URL, "api_key": API_KEY}
loop = asyncio.new_event_loop()


class Mood(pydantic.BaseModel):
    is_positive: bool


def asked(config, **options):
    # Without tasks: the tools that hand them out are longer than the demo model's room.
    async def reply():
        return await (await Agent("helper", "Help.", config=config, tasks=False, **options).ask(QUESTION)).content()

    return loop.run_until_complete(reply())


def test_chat():
    assert asked(OpenAIConfig(max_completion_tokens=40, **TO))
    assert asked(OpenAIConfig(max_completion_tokens=40, streaming=True, **TO))


def test_responses():
    assert asked(OpenAIResponsesConfig(max_output_tokens=40, **TO))


def test_response_schema():
    assert isinstance(asked(OpenAIConfig(max_completion_tokens=40, **TO), response_schema=Mood), Mood)
    assert isinstance(asked(OpenAIResponsesConfig(max_output_tokens=40, **TO), response_schema=Mood), Mood)


def test_tools():
    def weather(rainy: bool) -> str:
        """Says the weather."""
        return "rain" if rainy else "sun"

    # What the model may call is its own affair; that it is asked with tools must be no error.
    asked(OpenAIConfig(max_completion_tokens=40, **TO), tools=[weather])
