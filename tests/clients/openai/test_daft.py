"""Daft's `prompt` and its provider for servers that speak OpenAI's API."""

import daft
from attempts import API_KEY, BASE_URL, MODEL
from daft import col
from daft.functions import prompt

PACKAGES = ["daft", "openai"]
frame = daft.from_pydict({"text": [f"Is this text positive? Answer yes or no.\n\nText: I love {row}." for row in range(5)]})


daft.set_provider("openai", base_url=BASE_URL, api_key=API_KEY)


def answers(**options):
    asked = prompt(col("text"), model=MODEL, provider="openai", **options)
    return frame.select(asked.alias("answer")).to_pydict()["answer"]


def test_prompt_by_chat_completions():
    found = answers(use_chat_completions=True, max_tokens=8)
    assert len(found) == 5 and None not in found


def test_prompt_by_default():
    found = answers()
    assert len(found) == 5 and None not in found
