"""Mirascope's `llm.call`, by responses (its default for `openai/`) and by chat completions."""

import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from mirascope import llm

PACKAGES = ["mirascope", "openai"]
llm.register_provider("openai", api_key=API_KEY, base_url=BASE_URL)
ROUTES = [f"openai/{MODEL}", f"openai/{MODEL}:completions"]


class Mood(pydantic.BaseModel):
    is_positive: bool


def asked(route, **options):
    @llm.call(route, max_tokens=120, **options)
    def ask():
        return QUESTION

    return ask


def test_chat():
    for route in ROUTES:
        assert asked(route)().text()


def test_stream():
    for route in ROUTES:
        assert "".join(asked(route).stream().text_stream())


def test_structured_output():
    for route in ROUTES:
        assert isinstance(asked(route, format=Mood)().parse(), Mood)


def test_structured_output_by_tools():
    for route in ROUTES:
        assert isinstance(asked(route, format=llm.format(Mood, mode="tool"))().parse(), Mood)


def test_tools():
    @llm.tool
    def weather(rainy: bool) -> str:
        """Says the weather."""
        return "rain" if rainy else "sun"

    # What the model may call is its own affair; that it is asked with tools must be no error.
    for route in ROUTES:
        assert asked(route, tools=[weather])() is not None
