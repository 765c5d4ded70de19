"""Semantic Kernel's `OpenAIChatCompletion`, alone and under a `ChatCompletionAgent`."""

import asyncio

import openai
import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from semantic_kernel import Kernel
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory, FunctionCallContent
from semantic_kernel.functions import kernel_function

PACKAGES = ["semantic-kernel", "openai"]
service = OpenAIChatCompletion(MODEL, async_client=openai.AsyncOpenAI(base_url=BASE_URL, api_key=API_KEY))
history = ChatHistory()
history.add_user_message(QUESTION)
loop = asyncio.new_event_loop()


class Mood(pydantic.BaseModel):
    is_positive: bool


class Weather:
    @kernel_function(description="Says the weather.")
    def weather(self, rainy: bool) -> str:
        return "rain" if rainy else "sun"


def settings(**options):
    return OpenAIChatPromptExecutionSettings(max_tokens=60, **options)


def test_chat():
    assert loop.run_until_complete(service.get_chat_message_content(history, settings())).content


def test_stream():
    async def chunks():
        return [str(chunk) async for chunk in service.get_streaming_chat_message_content(history, settings())]

    assert "".join(loop.run_until_complete(chunks()))


def test_structured_output():
    said = loop.run_until_complete(service.get_chat_message_content(history, settings(response_format=Mood)))
    Mood.model_validate_json(said.content)


def test_tools():
    kernel = Kernel()
    kernel.add_plugin(Weather(), "sky")
    how = settings(function_choice_behavior=FunctionChoiceBehavior.Required(auto_invoke=False))
    said = loop.run_until_complete(service.get_chat_message_content(history, how, kernel=kernel))
    calls = [item for item in said.items if isinstance(item, FunctionCallContent)]
    assert calls[0].name == "sky-weather" and calls[0].parse_arguments()["rainy"] in (True, False)


def test_agent():
    # What the model may call is its own affair; that it is asked with tools must be no error.
    agent = ChatCompletionAgent(service=service, name="helper", instructions="Help.", plugins=[Weather()])
    assert loop.run_until_complete(agent.get_response(QUESTION)).message is not None
