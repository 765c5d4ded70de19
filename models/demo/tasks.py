"""The training mixture: which task is drawn how often, from which texts; and the held-out sets.

Generated texts of the held-out sets come of another seed; real ones of documents never trained on.
"""

import random

import records
import sentiment
import topics
from prompts import casing, cell
from reviews import Review
from sentiment import Example


class Mixture:
    """Draws examples without end. `lexicon` and `reviews` are the training part only."""

    def __init__(self, reviews: list[Review], lexicon: dict[str, float], seed: int):
        self.rng = random.Random(seed)
        self.lexicon = lexicon
        self.by_source = {}
        for review in reviews:
            self.by_source.setdefault(review.source, []).append(review)
        self.by_value, self.by_sign = {}, {1: [], -1: []}
        for word, mean in lexicon.items():
            self.by_value.setdefault(round(mean * 2), []).append(word)
            if abs(mean) >= 1.0:
                self.by_sign[1 if mean > 0 else -1].append((word, mean))

    def real(self) -> Example | None:
        """A sentiment task about a real sentence, sometimes with words exchanged."""
        source = self.rng.choices(["movies", "products", "tweets", "editorials"], [10, 4, 3, 2])[0]
        review = self.rng.choice(self.by_source[source])
        text = sentiment.exchange(self.rng, review, self.lexicon, self.by_value) if self.rng.random() < 0.7 else review.text
        return sentiment.ask_about(self.rng, text, review.score, "")

    def draw(self) -> Example | None:
        kind = self.rng.random()
        if kind < 0.40:
            return self.real()
        if kind < 0.53:
            text, score, _ = sentiment.opinion(self.rng)
            return sentiment.ask_about(self.rng, text, score, "")
        if kind < 0.61:
            text, score = sentiment.lexicon_text(self.rng, self.by_sign)
            return sentiment.ask_about(self.rng, text, score, "")
        if kind < 0.77:
            return topics.topic(self.rng)
        if kind < 0.82:
            return topics.pair(self.rng)
        if kind < 0.96:
            return records.extract(self.rng)
        return records.reformat(self.rng) if kind < 0.98 else records.fill(self.rng)

    def __iter__(self):
        while True:
            example = self.draw()
            if example is not None:
                yield example


def held_out_real(reviews: list[Review], per_source: int, seed: int = 11) -> dict[str, list[Example]]:
    """Fixed tasks about held-out real sentences, by source: the same prompts a user of the sheet makes."""
    sets = {}
    for source in ("movies", "products", "tweets", "editorials"):
        rng = random.Random(seed)
        chosen = [review for review in reviews if review.source == source and review.held_out]
        rng.shuffle(chosen)
        two, three, filters, stars, free = [], [], [], [], []
        for review in chosen[:per_source]:
            text, score = review.text, review.score
            if abs(score) >= 0.5:
                side = "positive" if score > 0 else "negative"
                two.append(Example("", cell("classify", labels="positive, negative", text=text), side, score))
                filters.append(Example("", cell("ask", prompt="Is this review positive? Answer yes or no.", context=text), "yes" if score > 0 else "no", score))
            side = "positive" if score > 0.5 else "negative" if score < -0.5 else "neutral"
            three.append(Example("", cell("classify", labels="positive, negative, neutral", text=text), side, score))
            free.append(Example("", f"Categorize the sentiment of the review {text} as Negative, Positive, or Neutral.", side.capitalize(), score))
            stars.append(Example("", cell("rate", text=text), str(sentiment.stars(score)), score))
        for name, made in (("classify 2 labels", two), ("yes-no filter", filters), ("classify 3 labels", three),
                           ("free-form 3 labels", free), ("rate 1-5", stars)):
            sets[f"{source}: {name}"] = made
    return sets


def held_out_generated(lexicon: dict[str, float], per_task: int, seed: int = 977) -> dict[str, list[Example]]:
    """Tasks over freshly generated texts."""
    rng = random.Random(seed)

    def opinions():
        text, score, _ = sentiment.opinion(rng)
        return sentiment.ask_about(rng, text, score, "opinion ")

    sets = {}
    for make in (opinions, lambda: topics.topic(rng), lambda: topics.pair(rng), lambda: records.extract(rng),
                 lambda: records.reformat(rng), lambda: records.fill(rng)):
        for _ in range(per_task * 6):
            example = make()
            if example is not None and len(sets.setdefault(example.task, [])) < per_task:
                sets[example.task].append(example)
    # Label words that never occur as labels in training: what is left is meaning alone.
    unseen = [("joyful", "miserable"), ("superb", "dreadful"), ("delighted", "furious"), ("win", "fail")]
    sets["opinion, unseen label words"] = []
    while len(sets["opinion, unseen label words"]) < per_task:
        text, score, mixed = sentiment.opinion(rng)
        if abs(score) > 0.8 and not mixed:
            labels = list(rng.choice(unseen))
            right = labels[score < 0]
            rng.shuffle(labels)
            sets["opinion, unseen label words"].append(Example("", cell("classify", labels=", ".join(labels), text=text), right, score))
    return sets
