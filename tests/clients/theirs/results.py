"""What came of a test or an example, in one line each, and the tables that say what is expected of which."""

import re
import tomllib
from pathlib import Path


def table(name):
    """A file of expectations: `skipped` and `gaps`, each from a pattern of names to a reason."""
    return tomllib.loads((Path(__file__).parent / name).read_text())


def reason(patterns, name):
    """The reason of the first pattern that is the name, or a folder, a file or a test that the name is part of."""
    found = (why for pattern, why in patterns.items() if re.fullmatch(rf"(?:{pattern})(?:(?:/|::|\[).*)?", name))
    return next(found, None)


class Results:
    """Prints each outcome as it comes, and counts them."""

    def __init__(self, gaps):
        self.gaps = gaps
        self.counts = {"works": 0, "gap": 0, "skipped": 0, "FAILED": 0}

    def say(self, outcome, name, why=""):
        self.counts[outcome] += 1
        print(f"{outcome}: {name}{': ' if why else ''}{why}", flush=True)

    def ran(self, name, failure):
        """What ran, with what it wrote where it failed. What is listed as a gap must fail."""
        gap = reason(self.gaps, name)
        if failure and gap:
            self.say("gap", name, gap)
        elif failure:
            self.say("FAILED", name, f"\n{failure}")
        elif gap:
            self.say("FAILED", name, f"works, though it is listed as a gap ({gap})")
        else:
            self.say("works", name)

    def end(self, of):
        """Prints the counts and gives the exit code."""
        print(f"{of}: " + ", ".join(f"{count} {outcome}" for outcome, count in self.counts.items()))
        return 1 if self.counts["FAILED"] or not self.counts["works"] else 0
