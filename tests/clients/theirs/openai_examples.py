"""Runs openai-python's own examples as they are, and says in one line what came of each.

usage: python openai_examples.py SOURCE [EXAMPLE.py ..], with OPENAI_BASE_URL and OPENAI_API_KEY set.

`openai.toml` says why an example is not run, and which fail for a known reason: those must fail.
"""

import subprocess
import sys
from pathlib import Path

from results import Results, reason, table

TABLE = table("openai.toml")
SECONDS_MAX = 240


def run(source, name):
    """None, or what an example wrote when it failed."""
    command = [sys.executable, f"examples/{name}", *TABLE["arguments"].get(name, [])]
    try:
        done = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=SECONDS_MAX)
    except subprocess.TimeoutExpired:
        return f"took more than {SECONDS_MAX} s"
    return done.stdout + done.stderr if done.returncode else None


def main(source, *only):
    results = Results(TABLE["gaps"])
    examples = Path(source, "examples")
    # A folder that is skipped is told once.
    skipped = {}
    for path in sorted(examples.rglob("*.py")):
        name = str(path.relative_to(examples))
        if name.endswith("__init__.py") or (only and name not in only):
            continue
        why = reason(TABLE["skipped"], name)
        if why:
            folder = name.split("/")[0]
            skipped[folder if reason(TABLE["skipped"], folder) else name] = why
            continue
        failure = run(source, name)
        # Answers are drawn, and a small model's may have no end: what should work is tried twice.
        if failure and not reason(TABLE["gaps"], name):
            failure = run(source, name)
        results.ran(name, failure)
    for name, why in skipped.items():
        results.say("skipped", name, why)
    return results.end("openai-python's examples")


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
