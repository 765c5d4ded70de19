"""aisuite, by its provider `openai`."""

import aisuite
from attempts import API_KEY, BASE_URL, MODEL, QUESTION

PACKAGES = ["aisuite", "openai"]
client = aisuite.Client({"openai": {"base_url": BASE_URL, "api_key": API_KEY}})


def reply(**options):
    messages = [{"role": "user", "content": QUESTION}]
    return client.chat.completions.create(model=f"openai:{MODEL}", messages=messages, max_tokens=40, **options)


def test_chat():
    assert reply().choices[0].message.content


def test_stream():
    assert "".join(chunk.choices[0].delta.content or "" for chunk in reply(stream=True) if chunk.choices)


def test_tools():
    def weather(rainy: bool):
        """Says the weather.

        Args:
            rainy: Whether it rains.
        """
        asked.append(rainy)
        return "rain" if rainy else "sun"

    asked = []
    assert reply(tools=[weather], tool_choice="required", max_turns=2).choices
    assert asked and set(asked) <= {True, False}
