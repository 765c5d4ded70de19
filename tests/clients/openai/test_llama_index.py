"""LlamaIndex, by `OpenAILike`."""

from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike

PACKAGES = ["llama-index-llms-openai-like", "llama-index-core"]
OPTIONS = {"model": MODEL, "api_base": BASE_URL, "api_key": API_KEY, "context_window": 512, "max_tokens": 40}
OPTIONS["is_chat_model"] = True
model = OpenAILike(**OPTIONS)


def test_chat():
    assert model.chat([ChatMessage(role="user", content=QUESTION)]).message.content


def test_stream():
    assert list(model.stream_chat([ChatMessage(role="user", content=QUESTION)]))


def test_complete():
    assert model.complete(QUESTION).text


def test_completion_route():
    plain = OpenAILike(model=MODEL, api_base=BASE_URL, api_key=API_KEY, is_chat_model=False, max_tokens=4)
    assert plain.complete("The film was").text


def weather(rainy: bool) -> str:
    """Says the weather."""
    return "rain" if rainy else "sun"


def test_tools():
    caller = OpenAILike(**{**OPTIONS, "is_function_calling_model": True, "max_tokens": 60})
    tools = [FunctionTool.from_defaults(fn=weather)]
    reply = caller.chat_with_tools(tools, user_msg=QUESTION, tool_required=True)
    calls = caller.get_tool_calls_from_response(reply)
    assert calls[0].tool_name == "weather" and calls[0].tool_kwargs["rainy"] in (True, False)
