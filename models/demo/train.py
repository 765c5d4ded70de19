"""Trains RelServe's demo model: a few-million-parameter Llama that answers closed cell functions.

    python -m venv venv && venv/bin/pip install -r requirements.txt
    venv/bin/python train.py --steps 10000           # data, tokenizer, training, export into this folder
    venv/bin/python evaluate.py                      # held-out accuracy, from the exported files alone

Data: generated texts (words.py, sentiment.py, topics.py, records.py) and the human-rated sentences of the
MIT-licensed vaderSentiment package (reviews.py downloads it). Seeds are fixed. `--minutes` bounds the time:
the schedule then ends early, and the model differs from one of a faster machine. `--resume` continues from
the state file of an earlier run.
"""

import argparse
import math
import pickle
import time
from itertools import islice
from pathlib import Path

import jax
import numpy as np
from tokenizers import Tokenizer

import embedding
import export
import reviews
import sentiment
import topics
from batches import batches, train_tokenizer
from network import Shape, init, make_step, optimiser_state
from prompts import SYSTEMS
from tasks import Mixture

HERE = Path(__file__).resolve().parent
SEED = 20


def tokenizer_texts(mixture: Mixture, train: list) -> list[str]:
    """What the tokenizer learns its merges from: prompts, answers, real sentences, the lexicon's words."""
    texts = []
    for example in islice(mixture, 30_000):
        texts += [" " + example.prompt, " " + example.answer]
    texts += [" " + review.text for review in train] * 2
    for word, mean in mixture.lexicon.items():
        texts += [" " + word] * (3 if abs(mean) > 1.5 else 1)
    return texts


def embedding_texts(mixture: Mixture, train: list) -> tuple[list[str], list[tuple[str, float]]]:
    """Plain texts, and texts with their score, from which the embedding's start is fitted."""
    scored = [(review.text, review.score) for review in train] + [(word, mean) for word, mean in mixture.lexicon.items()] * 2
    scored += [sentiment.opinion(mixture.rng)[:2] for _ in range(10_000)]
    texts = [text for text, _ in scored]
    for group, make in ((topics.TOPICS, topics.topic_text), (topics.INTENTS, topics.intent_text)):
        texts += [make(name, mixture.rng) + " " + make(name, mixture.rng) + f" {name}" for name in group for _ in range(400)]
    return texts, scored


def learning_rates(progress: float, step: int, peak: float) -> tuple[float, float]:
    """Muon's and Adam's rate: short warm-up, then a cosine to a twentieth."""
    factor = peak * min(1.0, (step + 1) / 40) * (0.05 + 0.95 * 0.5 * (1 + math.cos(math.pi * min(1.0, progress))))
    return 0.03 * factor, 0.0025 * factor


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--minutes", type=float, default=math.inf, help="wall-clock bound of the schedule")
    parser.add_argument("--data", type=Path, default=HERE / "data", help="folder of the downloaded source distribution")
    parser.add_argument("--out", type=Path, default=HERE, help="folder of the exported model")
    parser.add_argument("--state", type=Path, default=HERE / "data" / "state.pkl", help="checkpoint of the training itself")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--peak", type=float, default=1.0, help="scale of the learning rates")
    parser.add_argument("--dropout", type=float, default=0.0)
    arguments = parser.parse_args()

    everything, lexicon = reviews.load(arguments.data)
    train = [review for review in everything if not review.held_out]
    shape = Shape()
    begun = 0
    if arguments.resume:
        begun, params, state, text = pickle.loads(arguments.state.read_bytes())
        tokenizer = Tokenizer.from_str(text)
        params, state = jax.tree.map(jax.numpy.asarray, (params, state))
    else:
        tokenizer = train_tokenizer(tokenizer_texts(Mixture(train, lexicon, SEED), train), shape.vocab)
        params = init(shape, SEED)
        texts, scored = embedding_texts(Mixture(train, lexicon, SEED + 7), train)
        start = embedding.initial(tokenizer, texts, scored, shape.vocab, shape.hidden, SEED)
        params["model.embed_tokens.weight"] = jax.numpy.asarray(start)
        state = optimiser_state(params)
    assert tokenizer.get_vocab_size() <= shape.vocab
    stream = batches(Mixture(train, lexicon, SEED + 1 + begun), tokenizer, SEED + 1 + begun, SYSTEMS)
    advance = make_step(shape, arguments.dropout, decay=0.05)
    print(f"{sum(np.prod(p.shape) for p in params.values()) / 1e6:.2f} M parameters, {len(train)} rated sentences", flush=True)

    started, tokens, shown = time.time(), 0, []
    step = 0
    while True:
        progress = max(step / arguments.steps, (time.time() - started) / 60 / arguments.minutes)
        if progress >= 1:
            break
        batch = next(stream)
        muon, adam = learning_rates(progress, step, arguments.peak)
        params, state, report = advance(params, state, batch, float(begun + step + 1), muon, adam, jax.random.key(begun + step))
        tokens += batch["tokens"].size
        step += 1
        shown.append([float(value) for value in report])
        if step % 25 == 0 or step == 3:
            answer, squared = np.mean(shown, 0)
            shown = []
            seconds = time.time() - started
            print(f"step {step} progress {progress:.3f} answer loss {answer:.3f} score error {squared:.3f} {tokens / seconds:.0f} tokens/s {seconds:.0f} s", flush=True)
        if step % 100 == 0:
            save(arguments.state, begun + step, params, state, tokenizer)
    save(arguments.state, begun + step, params, state, tokenizer)
    export.write(arguments.out, shape, params, tokenizer)
    print(f"{begun + step} steps, {tokens} tokens, exported to {arguments.out}")


def save(path: Path, step: int, params: dict, state: dict, tokenizer: Tokenizer) -> None:
    """The state a later run continues from; written whole, then moved."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    partial.write_bytes(pickle.dumps((step, *jax.tree.map(np.asarray, (params, state)), tokenizer.to_str())))
    partial.rename(path)


if __name__ == "__main__":
    main()
