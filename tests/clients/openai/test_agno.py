"""Agno's `OpenAILike`."""

import pydantic
from agno.agent import Agent
from agno.models.openai import OpenAILike
from attempts import API_KEY, BASE_URL, MODEL, QUESTION

PACKAGES = ["agno", "openai"]


class Mood(pydantic.BaseModel):
    is_positive: bool


def agent(**options):
    return Agent(model=OpenAILike(id=MODEL, base_url=BASE_URL, api_key=API_KEY, max_tokens=40), telemetry=False, **options)


def test_chat():
    assert agent().run(QUESTION).content


def test_stream():
    assert "".join(str(event.content) for event in agent().run(QUESTION, stream=True) if getattr(event, "content", None))


def test_structured_output():
    assert isinstance(agent(output_schema=Mood).run(QUESTION).content, Mood)


def test_tools():
    def weather(rainy: bool) -> str:
        """Says the weather."""
        asked.append(rainy)
        return "rain" if rainy else "sun"

    asked = []
    agent(tools=[weather], tool_choice="required", tool_call_limit=1).run(QUESTION)
    assert asked and set(asked) <= {True, False}
