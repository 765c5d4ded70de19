"""AutoGen's `OpenAIChatCompletionClient`, alone and under an `AssistantAgent`."""

import asyncio

import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from autogen_agentchat.agents import AssistantAgent
from autogen_core.models import ModelFamily, UserMessage
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient

PACKAGES = ["autogen-agentchat", "autogen-ext", "openai"]
INFO = {"vision": False, "function_calling": True, "json_output": True, "structured_output": True}
INFO["family"] = ModelFamily.UNKNOWN
client = OpenAIChatCompletionClient(model=MODEL, base_url=BASE_URL, api_key=API_KEY, max_tokens=40, model_info=INFO)
MESSAGES = [UserMessage(content=QUESTION, source="user")]
loop = asyncio.new_event_loop()


class Mood(pydantic.BaseModel):
    is_positive: bool


def weather(rainy: bool) -> str:
    """Says the weather."""
    return "rain" if rainy else "sun"


def test_chat():
    assert loop.run_until_complete(client.create(MESSAGES)).content


def test_stream():
    async def chunks():
        return [chunk async for chunk in client.create_stream(MESSAGES)]

    said = loop.run_until_complete(chunks())
    assert "".join(said[:-1]) == said[-1].content


def test_structured_output():
    Mood.model_validate_json(loop.run_until_complete(client.create(MESSAGES, json_output=Mood)).content)


def test_tools():
    tool = FunctionTool(weather, description="Says the weather.")
    said = loop.run_until_complete(client.create(MESSAGES, tools=[tool], tool_choice="required"))
    assert said.content[0].name == "weather"


def test_agent():
    # What the model may call is its own affair; that it is asked with tools must be no error.
    agent = AssistantAgent("helper", client, tools=[weather], system_message="Help.")
    assert loop.run_until_complete(agent.run(task=QUESTION)).messages
