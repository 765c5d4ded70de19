"""Prompt texts: the cell functions' templates (ir/catalogue.toml), free-form paraphrases, chat wrapping.

What a model reads is made here and only here. Knows nothing of where texts and labels come from.
"""

import random
import tomllib
from pathlib import Path

SPECIAL = ["<|end|>", "<|user|>", "<|assistant|>", "<|system|>", "<|pad|>"]
END, USER, ASSISTANT, SYSTEM, PAD = range(5)

# One space before every content: label and name tokens then look the same inside the prompt and in the answer.
CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message['role'] }}|> {{ message['content'] }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)

CATALOGUE = tomllib.loads((Path(__file__).resolve().parents[2] / "ir" / "catalogue.toml").read_text())


def cell(function: str, **values: str) -> str:
    """A cell function's prompt, as the server fills it."""
    entry = CATALOGUE[function]
    text = entry["template"]
    for name, value in {**entry.get("defaults", {}), **values}.items():
        text = text.replace("{" + name + "}", value)
    return text


def chat(prompt: str, system: str | None = None) -> str:
    """The model's chat template, filled; the assistant's turn is open."""
    before = f"<|system|> {system}<|end|>" if system else ""
    return f"{before}<|user|> {prompt}<|end|><|assistant|>"


NOUNS = ["review", "text", "comment", "message", "feedback", "sentence", "post", "customer review", "note"]
BY_LABELS = [
    "Categorize the sentiment of the {noun} {text} as {or}.",
    "Classify the sentiment of this {noun} as {or}.\n\n{text}",
    "Classify the {noun} as {or}: {text}",
    "What is the sentiment of this {noun}? Answer with one of: {list}.\n{text}",
    "Is the {noun} {or}?\n\n{noun}: {text}",
    "{text}\n\nIs this {noun} {or}? Answer with one word.",
    "{text}\nSentiment ({slash}):",
    "Sentiment of the {noun}, one of {quoted}.\n\n{text}",
    "Label the {noun} with exactly one of these: {list}. {noun}: {text}",
    "{noun}: {text}\nChoose the label: {list}.",
    "Given the {noun} below, answer {or} only.\n\n{text}",
    "Options:\n{lines}\n\n{noun}: {text}\nWhich option fits?",
    "Analyze the {noun} {text} and say whether it is {or}.",
]
TOPIC_BY_LABELS = [
    "Classify the {noun} as {or}: {text}",
    "What is the {noun} about? Answer with one of: {list}.\n{text}",
    "{text}\n\nTopic ({slash}):",
    "Choose the topic of the {noun}: {list}.\n\n{text}",
    "Label the {noun} with exactly one of these: {list}. {noun}: {text}",
    "Which category fits, {or}? {noun}: {text}",
    "Options:\n{lines}\n\n{noun}: {text}\nWhich option fits?",
    "Assign the {noun} {text} to one category: {quoted}.",
]
SYSTEMS = ["You are a helpful assistant.", "Answer briefly.", "You label spreadsheet rows.",
           "You are a data analyst. Answer with the label only."]


def fill(template: str, text: str, labels: list[str], rng: random.Random) -> str:
    """A free-form template with its labels written in one of the usual ways."""
    comma = ", ".join(labels[:-1])
    values = {
        "noun": rng.choice(NOUNS),
        "or": rng.choice([f"{comma}, or {labels[-1]}", f"{comma} or {labels[-1]}", ", ".join(labels)]),
        "list": rng.choice([", ".join(labels), "; ".join(labels)]),
        "slash": rng.choice(["/".join(labels), " / ".join(labels), ", ".join(labels)]),
        "quoted": ", ".join(f'"{label}"' for label in labels),
        "lines": "\n".join(f"- {label}" for label in labels),
    }
    if len(labels) == 2:
        values["or"] = f"{labels[0]} or {labels[1]}"
    for name, value in values.items():
        template = template.replace("{" + name + "}", value)
    if rng.random() < 0.2:
        text = f'"{text}"'
    return template.replace("{text}", text)


def by_labels(text: str, labels: list[str], templates: list[str], rng: random.Random) -> str:
    """A labelling prompt: the cell function's half of the time, else free-form."""
    if rng.random() < 0.45:
        return cell("classify", labels=", ".join(labels), text=text)
    return fill(rng.choice(templates), text, labels, rng)


YES_NO = ["Answer yes or no.", "Yes or no?", "Answer Yes or No.", "Answer with yes or no.", "(yes/no)",
          "Reply YES or NO.", "Answer true or false.", "True or False?", "Answer only yes or no.", ""]


def yes_no(question: str, truth: bool, text: str, rng: random.Random) -> tuple[str, str]:
    """A filter: the question, how to answer it, the text in either place; and its answer as asked."""
    how = rng.choice(YES_NO)
    pair = next((pair for pair in (("Yes", "No"), ("YES", "NO"), ("True", "False"), ("true", "false")) if pair[0] in how),
                ("yes", "no"))
    if "Yes or no" in how:
        pair = ("yes", "no")
    asked = f"{question} {how}".strip()
    form = rng.random()
    if form < 0.5:
        prompt = cell("ask", prompt=asked, context=text)
    elif form < 0.75:
        prompt = f"{text}\n\n{asked}"
    else:
        prompt = f"{question}\n{rng.choice(['Text', 'Review', 'Message', 'Comment'])}: {text}\n{how}".strip()
    return prompt, pair[0] if truth else pair[1]


def casing(labels: list[str], rng: random.Random) -> list[str]:
    """The same labels in lower case, capitalised or upper case, all alike."""
    how = rng.random()
    if how < 0.45:
        return labels
    return [label[:1].upper() + label[1:] if how < 0.88 else label.upper() for label in labels]
