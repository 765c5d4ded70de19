"""Strands Agents' `OpenAIModel`."""

import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from strands import Agent, tool
from strands.models.openai import OpenAIModel

PACKAGES = ["strands-agents", "openai"]


class Mood(pydantic.BaseModel):
    """How a text sounds."""

    is_positive: bool


def agent(**options):
    model = OpenAIModel(
        client_args={"base_url": BASE_URL, "api_key": API_KEY}, model_id=MODEL, params={"max_completion_tokens": 120}
    )
    return Agent(model=model, callback_handler=None, **options)


def test_agent():
    # It streams.
    assert agent()(QUESTION).message["content"]


def test_structured_output():
    # By a tool that it asks for when the model calls none.
    assert isinstance(agent()(QUESTION, structured_output_model=Mood).structured_output, Mood)


def test_tools():
    @tool
    def weather(rainy: bool) -> str:
        """Says the weather."""
        return "rain" if rainy else "sun"

    # What the model may call is its own affair; that it is asked with tools must be no error.
    assert agent(tools=[weather])(QUESTION).stop_reason
