"""chatlas, by chat completions and by responses (its `ChatOpenAI`)."""

import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from chatlas import ChatOpenAI, ChatOpenAICompletions

PACKAGES = ["chatlas", "openai"]


class Mood(pydantic.BaseModel):
    is_positive: bool


def chats():
    for kind in (ChatOpenAICompletions, ChatOpenAI):
        chat = kind(base_url=BASE_URL, api_key=API_KEY, model=MODEL)
        chat.set_model_params(max_tokens=40)
        yield chat


def test_chat():
    for chat in chats():
        assert str(chat.chat(QUESTION, echo="none", stream=False))


def test_stream():
    for chat in chats():
        assert "".join(chat.stream(QUESTION))


def test_structured_output():
    for chat in chats():
        assert isinstance(chat.chat_structured(QUESTION, data_model=Mood), Mood)


def test_tools():
    def weather(rainy: bool) -> str:
        """Says the weather."""
        return "rain" if rainy else "sun"

    # What the model may call is its own affair; that it is asked with tools must be no error.
    for chat in chats():
        chat.register_tool(weather)
        chat.chat(QUESTION, echo="none", stream=False)
