"""Tokenizer and batches: examples become padded token arrays of a few fixed shapes."""

import random
from itertools import islice

import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from prompts import ASSISTANT, END, PAD, SPECIAL, chat

# (sequences, tokens) of a batch: about as many tokens in each; one compilation per shape.
SHAPES = [(96, 32), (64, 48), (44, 70), (28, 110), (18, 170)]
# Positions of a batch at which the head is applied.
PICKED = 320
# Weight of a prompt position's next token beside an answer's.
PROMPT_WEIGHT = 0.04


def train_tokenizer(texts, vocab: int) -> Tokenizer:
    """Byte-level BPE; digits apart, a leading space before every text, taken off when decoding."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Digits(individual_digits=True),
        pre_tokenizers.ByteLevel(add_prefix_space=False),
    ])
    tokenizer.decoder = decoders.Sequence([decoders.ByteLevel(), decoders.Strip(content=" ", left=1, right=0)])
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), min_frequency=2,
        show_progress=False))
    return tokenizer


def encode(tokenizer: Tokenizer, example, raw: bool, system: str | None) -> tuple[list[int], list[int]]:
    """Prompt and answer tokens. Raw prompts, as /v1/completions sends them, end in `Answer:`."""
    prompt = f"{example.prompt}\nAnswer:" if raw else chat(example.prompt, system)
    return (tokenizer.encode(prompt, add_special_tokens=False).ids,
            tokenizer.encode(" " + example.answer, add_special_tokens=False).ids + [END])


def make_batch(rows, length: int, rng: random.Random) -> dict:
    """One padded batch. Answer positions come first; what is left of PICKED falls on random prompt positions."""
    tokens = np.full((len(rows), length), PAD, np.int32)
    positions, targets, weights, last, score, scored = [], [], [], [], [], []
    prompt_positions = []
    for row, (prompt, answer, value) in enumerate(rows):
        whole = prompt + answer
        tokens[row, : len(whole)] = whole
        start = row * length + len(prompt) - 1
        positions += range(start, start + len(answer))
        targets += answer
        last.append(start)
        score.append(value or 0.0)
        scored.append(float(value is not None))
        prompt_positions += range(row * length, start)
    weights = [1.0] * len(positions)
    flat = tokens.reshape(-1)
    for position in rng.sample(prompt_positions, max(0, min(PICKED - len(positions), len(prompt_positions)))):
        positions.append(position)
        targets.append(int(flat[position + 1]))
        weights.append(PROMPT_WEIGHT)
    spare = PICKED - len(positions)
    return {
        "tokens": tokens,
        "positions": np.array((positions + [0] * spare)[:PICKED], np.int32),
        "targets": np.array((targets + [0] * spare)[:PICKED], np.int32),
        "weights": np.array((weights + [0.0] * spare)[:PICKED], np.float32),
        "last": np.array(last, np.int32),
        "score": np.array(score, np.float32),
        "scored": np.array(scored, np.float32),
    }


def batches(mixture, tokenizer: Tokenizer, seed: int, systems: list[str], pool: int = 3000):
    """Endless batches: a pool of examples is sorted by length, cut to the shapes and shuffled."""
    rng = random.Random(seed)
    source = iter(mixture)
    while True:
        by_shape = {shape: [] for shape in SHAPES}
        for example in islice(source, pool):
            raw = rng.random() < 0.04
            prompt, answer = encode(tokenizer, example, raw, rng.choice(systems) if rng.random() < 0.06 else None)
            for shape in SHAPES:
                if len(prompt) + len(answer) <= shape[1]:
                    by_shape[shape].append((prompt, answer, example.score))
                    break
        made = []
        for (count, length), rows in by_shape.items():
            rng.shuffle(rows)
            made += [make_batch(rows[at : at + count], length, rng) for at in range(0, len(rows) - count + 1, count)]
        rng.shuffle(made)
        yield from made


__all__ = ["ASSISTANT", "SHAPES", "batches", "encode", "make_batch", "train_tokenizer"]
