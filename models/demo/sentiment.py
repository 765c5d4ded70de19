"""Texts with a sentiment score from -4 to 4, and the sentiment tasks asked about them.

Three kinds of text: generated opinions, real rated sentences, and real sentences whose sentiment words were
exchanged for others of like valence (the lexicon's). Knows nothing of tokens.
"""

import random
import re
from dataclasses import dataclass

import words
from prompts import BY_LABELS, by_labels, casing, cell, yes_no
from reviews import Review


@dataclass
class Example:
    """A prompt and its right answer. `score` trains the auxiliary head where the text has one."""

    task: str
    prompt: str
    answer: str
    score: float | None = None


LEVELS = [(words.STRONG_GOOD, 2.8), (words.GOOD, 1.8), (words.MILD_GOOD, 0.9), (words.NEUTRAL, 0.0),
          (words.MILD_BAD, -0.9), (words.BAD, -1.8), (words.STRONG_BAD, -2.8)]


def phrase(rng: random.Random, sign: int) -> tuple[str, float]:
    """An opinion word with its boosts and negations; `sign` is the side the phrase should end on."""
    if sign == 0:
        return rng.choice(words.NEUTRAL), 0.0
    levels = LEVELS[:3] if sign > 0 else LEVELS[4:]
    form = rng.random()
    if form < 0.16:  # negated word of the other side
        word = rng.choice(words.BAD if sign > 0 else words.GOOD)
        how = rng.choice(["not", "not at all", "hardly", "never", "far from", "anything but"] if sign < 0 else ["not", "never", "not at all"])
        return f"{how} {word}", sign * (1.4 if sign < 0 else 0.9)
    group, score = rng.choices(levels, (4, 5, 2) if sign > 0 else (2, 5, 4))[0]
    word = rng.choice(group)
    if abs(score) == 1.8 and form < 0.5:
        if form < 0.4:
            return f"{rng.choice(words.BOOST)} {word}", score * 1.35
        return f"{rng.choice(words.SOFT)} {word}", score * 0.55
    return word, score


def clause(rng: random.Random, domain: str, sign: int) -> tuple[str, float]:
    """One judged aspect, or one whole opinion."""
    items, aspects = words.DOMAINS[domain]
    if rng.random() < 0.3:
        fitting = [pair for pair in words.OPINIONS if (pair[0] > 0.5) - (pair[0] < -0.5) == sign]
        score, text = rng.choice(fitting)
        return text.replace("{x}", rng.choice(items)), score
    text, score = phrase(rng, sign)
    subject = rng.choice([f"the {rng.choice(aspects)}", f"this {rng.choice(items)}", f"the {rng.choice(items)}", "it", f"their {rng.choice(aspects)}"])
    verb = rng.choice(["was", "is", "seemed", "felt", "turned out"] if subject != "it" else ["was", "is"])
    form = rng.choice(["{s} {v} {p}", "{s} {v} {p}", "{s} {v} {p}", "I found {s} {p}", "I think {s} {v} {p}", "honestly, {s} {v} {p}"])
    made = form.replace("{s}", subject).replace("{v}", verb).replace("{p}", text)
    return made[0].upper() + made[1:] + rng.choice([".", ".", ".", "!"]), score


def opinion(rng: random.Random) -> tuple[str, float, bool]:
    """A generated review: text, score, and whether it praises and blames at once."""
    domain = rng.choice(list(words.DOMAINS))
    sign = rng.choices([1, 0, -1], [4, 2, 4])[0]
    if sign and rng.random() < 0.22:  # both sides; what follows `but` decides
        first, one = clause(rng, domain, -sign)
        second, two = clause(rng, domain, sign)
        second = second[0].lower() + second[1:] if not second.startswith("I ") else second
        link = rng.choice([", but ", ". However, ", ", yet ", ". Still, ", ", although "])
        text = first.rstrip(".!") + link + second
        mixed = (two - one) / 2 * 0 + (0.65 * two + 0.35 * one if link != ", although " else 0.65 * one + 0.35 * two)
        return text, mixed, True
    parts = [clause(rng, domain, sign) for _ in range(rng.choice([1, 1, 2, 2, 3]))]
    score = sum(score for _, score in parts) / len(parts)
    if len(parts) > 1:
        score *= 1.1
    text = " ".join(part for part, _ in parts)
    if rng.random() < 0.15:
        text = text.lower()
    return text, max(-3.5, min(3.5, score)), False


def lexicon_text(rng: random.Random, by_sign: dict[int, list[tuple[str, float]]]) -> tuple[str, float]:
    """One to three lexicon words of one sign: teaches the polarity of rare words."""
    sign = rng.choice([1, -1])
    chosen = [rng.choice(by_sign[sign]) for _ in range(rng.choice([1, 2, 2, 3]))]
    score = max((value for _, value in chosen), key=abs)
    text = rng.choice([" ", ", ", " and "]).join(word for word, _ in chosen)
    items, aspects = words.DOMAINS[rng.choice(list(words.DOMAINS))]
    form = rng.choice(["{t}", "{t}!", "so {t}", "The {x} is {t}.", "What a {t} {i}.", "{i}: {t}", "I felt {t} about this {i}."])
    return form.replace("{t}", text).replace("{x}", rng.choice(aspects)).replace("{i}", rng.choice(items)), score


def exchange(rng: random.Random, review: Review, lexicon: dict[str, float], by_value: dict[int, list[str]]) -> str:
    """The sentence with some lexicon words exchanged for others of the same valence, and a few words lost."""
    out = []
    for word in review.text.split(" "):
        bare = re.sub(r"[^a-z]", "", word.lower())
        value = lexicon.get(bare)
        if value is not None and abs(value) > 0.8 and word.isalpha() and word.islower() and rng.random() < 0.25:
            out.append(rng.choice(by_value[round(value * 2)]))
        elif rng.random() > 0.06:
            out.append(word)
    text = " ".join(out) or review.text
    return text.lower() if rng.random() < 0.1 else text


TWO = [("positive", "negative")] * 8 + [("good", "bad"), ("pos", "neg"), ("favorable", "unfavorable"),
       ("happy", "unhappy"), ("happy", "angry"), ("satisfied", "dissatisfied"), ("liked", "disliked"), ("love", "hate"),
       ("recommended", "not recommended"), ("thumbs up", "thumbs down"), ("praise", "complaint"), ("great", "terrible"),
       ("fresh", "rotten"), ("like", "dislike"), ("approve", "disapprove"), ("pleased", "upset"), ("fan", "critic"), ("praising", "critical")]
MIDDLE = ["neutral", "neutral", "neutral", "neutral", "okay", "mixed", "average", "neither", "indifferent", "unclear"]
FIVE = [["very negative", "negative", "neutral", "positive", "very positive"], ["terrible", "bad", "okay", "good", "excellent"],
        ["awful", "poor", "average", "good", "great"], ["strongly negative", "negative", "neutral", "positive", "strongly positive"]]


def stars(score: float) -> int:
    """Score -4..4 to 1..5 stars; the bounds split the rated reviews into fair parts."""
    return 1 + sum(score > bound for bound in (-1.7, -0.5, 0.5, 1.7))


def labelled(rng: random.Random, text: str, score: float, task: str) -> Example | None:
    """Asks for one of some labels; None when the score lies between two."""
    kind = rng.random()
    if kind < 0.1:
        labels = rng.choice(FIVE)
        right = labels[stars(score) - 1]
    elif kind < 0.5:
        if abs(score) < 0.4:
            return None
        labels = list(rng.choice(TWO))
        right = labels[score < 0]
    else:
        if 0.4 < abs(score) < 0.65:
            return None
        good, bad = rng.choice(TWO[:2] if rng.random() < 0.6 else TWO)
        labels = [good, rng.choice(MIDDLE) if good != "positive" or rng.random() < 0.2 else "neutral", bad]
        right = labels[0 if score > 0.5 else 2 if score < -0.5 else 1]
    place = labels.index(right)
    cased = casing(labels, rng)
    right = cased[place]
    cased = list(cased)
    if rng.random() < 0.75:
        rng.shuffle(cased)
    return Example(task + "classify", by_labels(text, cased, BY_LABELS, rng), right, score)


ASKED = [("Is this review positive?", 1), ("Is this {n} negative?", -1), ("Is the {n} positive?", 1), ("Does the customer like it?", 1),
         ("Is the customer happy?", 1), ("Is the customer unhappy?", -1), ("Would the reviewer recommend it?", 1), ("Is the writer satisfied?", 1),
         ("Is this a complaint?", -1), ("Does the reviewer dislike it?", -1), ("Is the tone negative?", -1), ("Is the sentiment positive?", 1),
         ("Is it a good review?", 1), ("Is it a bad review?", -1), ("Did the reviewer enjoy it?", 1), ("Is the {n} critical?", -1)]


def asked(rng: random.Random, text: str, score: float, task: str) -> Example | None:
    """A yes-no filter on sentiment."""
    if 0.4 < abs(score) < 0.65:
        return None
    if rng.random() < 0.1:
        side = "positive" if score > 0.5 else "negative" if score < -0.5 else "neutral"
        return Example(task + "open question", cell("ask", prompt=rng.choice(OPEN), context=text), side, score)
    question, sign = rng.choice(ASKED)
    question = question.replace("{n}", rng.choice(["review", "text", "comment", "message"]))
    prompt, answer = yes_no(question, score * sign > 0.5, text, rng)
    return Example(task + "yes-no", prompt, answer, score)


OPEN = ["What is the sentiment?", "What is the sentiment of this review?", "Sentiment?", "What is the tone of this text?"]

RATED = [("how positive it is", 1), ("how positive it is", 1), ("sentiment", 1), ("customer satisfaction", 1), ("satisfaction", 1),
         ("how much the writer likes it", 1), ("how negative it is", -1), ("enthusiasm", 1), ("how unhappy the customer is", -1)]


def rated(rng: random.Random, text: str, score: float, task: str) -> Example:
    """A rating on the default or another scale."""
    criterion, sign = rng.choice(RATED)
    low, high = rng.choice([(1, 5)] * 7 + [(1, 3), (0, 10), (1, 10)])
    if (low, high) == (1, 5):
        value = stars(score * sign)
    else:
        value = low + round((max(-2.8, min(2.8, score * sign)) + 2.8) / 5.6 * (high - low))
    if rng.random() < 0.5:
        prompt = cell("rate", text=text, criterion=criterion, low=str(low), high=str(high))
    else:
        form = rng.choice(["Rate this review from {l} to {h}: {t}", "{t}\n\nOn a scale of {l} to {h}, {c}?", "Give {c} from {l} to {h}. {t}",
                           "How many stars from {l} to {h} would this reviewer give?\n{t}", "Score the review {t} by {c}, {l} to {h}."])
        if "{c}" not in form:
            value = stars(score) if (low, high) == (1, 5) else low + round((max(-2.8, min(2.8, score)) + 2.8) / 5.6 * (high - low))
        prompt = form.replace("{l}", str(low)).replace("{h}", str(high)).replace("{c}", criterion).replace("{t}", text)
    return Example(task + "rate", prompt, str(value), score)


def ask_about(rng: random.Random, text: str, score: float, task: str) -> Example | None:
    """One of the sentiment tasks about a text."""
    kind = rng.random()
    if kind < 0.56:
        return labelled(rng, text, score, task)
    if kind < 0.78:
        return asked(rng, text, score, task)
    return rated(rng, text, score, task)
