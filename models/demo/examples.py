"""Writes examples/reviews.csv (real held-out rows) and answers.json (what reference.py answers to 24 prompts).

    venv/bin/python examples.py reviews      # ../../examples/reviews.csv
    venv/bin/python examples.py answers      # answers.json, after every training

The review rows are drawn once by a fixed seed, not by what the model gets right: 30 of films and 20 of products,
from documents the model never saw, of six words or more, where the raters agree on a side (mean beyond +-1).
"""

import csv
import json
import random
import sys
from pathlib import Path

import reviews
from prompts import cell
from reference import Reference

HERE = Path(__file__).resolve().parent
ROWS = HERE.parents[1] / "examples" / "reviews.csv"


def write_reviews() -> None:
    everything, _ = reviews.load(HERE / "data")
    rng = random.Random(50)
    rows = []
    for source, count in (("movies", 30), ("products", 20)):
        fitting = [review for review in everything if review.source == source and review.held_out
                   and abs(review.score) >= 1 and len(review.text.split()) >= 6]
        rows += rng.sample(fitting, count)
    rng.shuffle(rows)
    ROWS.parent.mkdir(exist_ok=True)
    with ROWS.open("w", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(["id", "review", "sentiment", "score"])
        for number, row in enumerate(rows, 1):
            out.writerow([number, row.text, "positive" if row.score > 0 else "negative", f"{row.score:.2f}"])
    print(f"{len(rows)} rows to {ROWS}")


def prompts() -> list[str]:
    """Prompts of each kind: the cell functions' and free ones."""
    rows = list(csv.DictReader(ROWS.open()))[:8]
    made = []
    for number, row in enumerate(rows):
        text = row["review"]
        made += [
            [cell("classify", labels="positive, negative", text=text), cell("rate", text=text)],
            [f"Categorize the sentiment of the review {text} as Negative, Positive, or Neutral.",
             cell("ask", prompt="Is this review positive? Answer yes or no.", context=text)],
        ][number % 2]
    return made + [
        cell("classify", labels="sports, food, travel, finance", text="The chef baked bread and a chocolate cake."),
        cell("classify", labels="billing, shipping, technical", text="My package has not arrived, where is my order?"),
        cell("extract", what="email", text="Contact anna.smith@example.com for details."),
        cell("extract", what="the price", text="I paid $120 for the camera."),
        cell("extract", what="city", text="Peter Novak lives in Lisbon."),
        cell("format", target="YYYY-MM-DD", text="March 5, 2021"),
        cell("classify", labels="urgent, not urgent", text="The server is down and customers cannot pay."),
        "Is this message about sports? Answer yes or no.\n\nThe goalkeeper won the final for the team.",
    ]


def write_answers() -> None:
    model = Reference(HERE)
    answers = [{"prompt": prompt, "answer": model.answer(prompt)} for prompt in prompts()]
    (HERE / "answers.json").write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n")
    for pair in answers:
        print(repr(pair["prompt"][-90:]), "->", repr(pair["answer"]))


if __name__ == "__main__":
    {"reviews": write_reviews, "answers": write_answers}[sys.argv[1]]()
