"""Held-out accuracy per task beside the majority class, from the exported files alone (reference.py).

    venv/bin/python evaluate.py [--per-source 400] [--per-task 150] [--model .] [--confusion]

Prints the Markdown tables of MODEL_CARD.md. An answer counts when it equals the right one to the letter.
The majority class is that of the right answers of the set itself.
"""

import argparse
import sys
from collections import Counter
from pathlib import Path

import reviews
from reference import Reference
from tasks import held_out_generated, held_out_real

HERE = Path(__file__).resolve().parent


def majority(examples) -> float:
    """Share of the commonest answer; for open answers this is near zero."""
    return Counter(example.answer for example in examples).most_common(1)[0][1] / len(examples)


def judge(model: Reference, examples) -> list[tuple[str, str]]:
    """(right answer, given answer) of each."""
    return [(example.answer, model.answer(example.prompt)) for example in examples]


def table(model: Reference, sets: dict, confusion: bool) -> None:
    print("| held-out set | examples | accuracy | majority class |\n| --- | ---: | ---: | ---: |")
    matrices = []
    for name, examples in sets.items():
        if not examples:
            continue
        pairs = judge(model, examples)
        accuracy = sum(right == given for right, given in pairs) / len(pairs)
        close = ""
        if name.endswith("rate 1-5"):
            near = sum(given.isdigit() and abs(int(given) - int(right)) <= 1 for right, given in pairs) / len(pairs)
            close = f" (within one: {near:.1%})"
        print(f"| {name} | {len(pairs)} | {accuracy:.1%}{close} | {majority(examples):.1%} |")
        sys.stdout.flush()
        matrices.append((name, pairs))
    for name, pairs in matrices if confusion else []:
        labels = sorted({right for right, _ in pairs})
        if len(labels) > 5:
            continue
        count = Counter(pairs)
        print(f"\n{name} (rows: right, columns: given)\n\n| | {' | '.join(labels)} | other |\n| --- |{' ---: |' * (len(labels) + 1)}")
        for right in labels:
            cells = [count[right, given] for given in labels]
            other = sum(n for (r, g), n in count.items() if r == right and g not in labels)
            print(f"| {right} | {' | '.join(map(str, cells))} | {other} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=HERE)
    parser.add_argument("--data", type=Path, default=HERE / "data")
    parser.add_argument("--per-source", type=int, default=400)
    parser.add_argument("--per-task", type=int, default=150)
    parser.add_argument("--confusion", action="store_true")
    arguments = parser.parse_args()
    everything, lexicon = reviews.load(arguments.data)
    model = Reference(arguments.model)
    print("Real sentences, documents never trained on:\n")
    table(model, held_out_real(everything, arguments.per_source), arguments.confusion)
    print("\nGenerated texts, another seed than training:\n")
    table(model, held_out_generated(lexicon, arguments.per_task), False)


if __name__ == "__main__":
    main()
