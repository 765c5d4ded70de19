"""any-llm's `completion` and `responses`, by its providers `openai` and `vllm`."""

import any_llm
import pydantic
from attempts import API_KEY, BASE_URL, MODEL, QUESTION

PACKAGES = ["any-llm-sdk", "openai"]
TO = {"model": MODEL, "api_key": API_KEY, "api_base": BASE_URL}
MESSAGES = [{"role": "user", "content": QUESTION}]


class Mood(pydantic.BaseModel):
    is_positive: bool


def completion(provider, **options):
    return any_llm.completion(provider=provider, messages=MESSAGES, max_tokens=40, **TO, **options)


def test_chat():
    for provider in ("openai", "vllm"):
        assert completion(provider).choices[0].message.content


def test_stream():
    assert "".join(chunk.choices[0].delta.content or "" for chunk in completion("openai", stream=True) if chunk.choices)


def test_structured_output():
    assert isinstance(completion("openai", response_format=Mood).choices[0].message.parsed, Mood)


def test_tools():
    def weather(rainy: bool) -> str:
        """Says the weather."""
        return "rain" if rainy else "sun"

    said = completion("openai", tools=[weather], tool_choice="required").choices[0].message
    assert said.tool_calls[0].function.name == "weather"


def test_responses():
    assert any_llm.responses(provider="openai", input_data=QUESTION, max_output_tokens=40, **TO).output
