"""Pydantic AI, by its default, which asks with tools, and with `NativeOutput`."""

import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.profiles.openai import OpenAIModelProfile
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.usage import UsageLimits

PACKAGES = ["pydantic-ai-slim"]
model = OpenAIChatModel(
    MODEL,
    provider=OpenAIProvider(base_url=BASE_URL, api_key=API_KEY),
    profile=OpenAIModelProfile(supports_json_schema_output=True),
    settings={"max_tokens": 40},
)


class Mood(pydantic.BaseModel):
    is_positive: bool


def test_chat():
    assert Agent(model).run_sync(QUESTION).output


def test_native_output():
    assert isinstance(Agent(model, output_type=NativeOutput(Mood)).run_sync(QUESTION).output, Mood)


def test_default_output():
    assert isinstance(Agent(model, output_type=Mood).run_sync(QUESTION).output, Mood)


def test_tools():
    # A model that may call nothing but the tool, then nothing but the answer's.
    asked = []
    agent = Agent(model, output_type=Mood, model_settings={"max_tokens": 60})

    @agent.tool_plain
    def weather() -> str:
        """The weather."""
        asked.append(True)
        return "rain"

    assert isinstance(agent.run_sync(QUESTION, usage_limits=UsageLimits(request_limit=20)).output, Mood)
