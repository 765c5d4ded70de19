"""OpenAI's Agents SDK, over chat completions; its default route is `/v1/responses`."""

import openai
import pydantic
from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, OpenAIResponsesModel, Runner, function_tool
from agents import set_tracing_disabled
from attempts import API_KEY, BASE_URL, MODEL, QUESTION

PACKAGES = ["openai-agents"]
set_tracing_disabled(True)
client = openai.AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY, max_retries=0)


class Mood(pydantic.BaseModel):
    is_positive: bool


@function_tool
def weather() -> str:
    """The weather."""
    return "rain"


def agent(model=OpenAIChatCompletionsModel, tool_choice=None, **settings):
    asked = ModelSettings(max_tokens=40, tool_choice=tool_choice)
    return Agent(name="A", model=model(MODEL, openai_client=client), model_settings=asked, **settings)


def test_chat():
    assert Runner.run_sync(agent(), QUESTION).final_output


def test_output_type():
    assert isinstance(Runner.run_sync(agent(output_type=Mood), QUESTION).final_output, Mood)


def tool_outputs(result):
    return [item.output for item in result.new_items if item.type == "tool_call_output_item"]


def test_tools():
    for model in (OpenAIChatCompletionsModel, OpenAIResponsesModel):
        # The first turn must call; then the SDK lets the model say what it likes.
        result = Runner.run_sync(agent(model, tool_choice="required", tools=[weather]), QUESTION)
        assert "rain" in tool_outputs(result), result.new_items


def test_default_route():
    assert Runner.run_sync(agent(OpenAIResponsesModel), QUESTION).final_output
