"""magentic's `prompt` with `OpenaiChatModel`."""

import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from magentic import FunctionCall, OpenaiChatModel, StreamedStr, prompt

PACKAGES = ["magentic", "openai"]
model = OpenaiChatModel(MODEL, base_url=BASE_URL, api_key=API_KEY, max_tokens=40)


class Mood(pydantic.BaseModel):
    is_positive: bool


def test_chat():
    @prompt(QUESTION, model=model)
    def ask() -> str: ...

    assert ask()


def test_stream():
    @prompt(QUESTION, model=model)
    def ask() -> StreamedStr: ...

    assert "".join(ask())


def test_structured_output():
    @prompt(QUESTION, model=model)
    def ask() -> Mood: ...

    @prompt(QUESTION, model=model)
    def is_positive() -> bool: ...

    assert isinstance(ask(), Mood)
    assert is_positive() in (True, False)


def test_function_call():
    def weather(rainy: bool) -> str:
        """Says the weather."""
        return "rain" if rainy else "sun"

    @prompt(QUESTION, functions=[weather], model=model)
    def ask() -> FunctionCall[str]: ...

    assert ask()() in ("rain", "sun")
