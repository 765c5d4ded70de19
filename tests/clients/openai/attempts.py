"""Tries one client: runs the functions `test_*` of `test_FAMILY.py` and says in one line what came of them.

usage: python attempts.py FAMILY, with RELSERVE_BASE_URL (ending in /v1) and RELSERVE_API_KEY set. A function with
`@missing` uses what the server is known not to have: it must fail, so that the table of docs/CLIENTS.md is changed
when it no longer does. RELSERVE_EMBEDDER is the name of the embedding model; without it what needs one is skipped.
"""

import importlib
import importlib.metadata
import json
import os
import sys
import traceback
import urllib.request

BASE_URL = os.environ["RELSERVE_BASE_URL"]
API_KEY = os.environ["RELSERVE_API_KEY"]
EMBEDDER = os.environ.get("RELSERVE_EMBEDDER")


def served_model():
    """The first model that the server lists."""
    request = urllib.request.Request(f"{BASE_URL}/models", headers={"Authorization": f"Bearer {API_KEY}"})
    with urllib.request.urlopen(request) as reply:
        return json.load(reply)["data"][0]["id"]


MODEL = served_model()
QUESTION = "Is this text positive? Answer yes or no.\n\nText: I love it."


def missing(what):
    """Marks an attempt that needs what the server does not have."""

    def mark(function):
        function.missing = what
        return function

    return mark


def needs_embedder(function):
    """Marks an attempt that needs an embedding model."""
    if EMBEDDER is None:
        function.skipped = "an embedding model"
    return function


def first_line(error):
    """An error as one short line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def attempt(function):
    """None, or what is wrong; prints what a known gap says."""
    gap = getattr(function, "missing", None)
    try:
        function()
    except Exception as error:
        if gap is None:
            traceback.print_exc()
            return first_line(error)
        print(f"  known gap: {function.__name__[5:]} needs {gap}: {first_line(error)}")
        return None
    return f"works, though it is listed as a gap ({gap})" if gap else None


def main(family):
    sys.modules["attempts"] = sys.modules["__main__"]
    module = importlib.import_module(f"test_{family}")
    functions = [value for name, value in vars(module).items() if name.startswith("test_")]
    for function in functions:
        if hasattr(function, "skipped"):
            print(f"  skipped: {function.__name__[5:]} needs {function.skipped}")
    functions = [function for function in functions if not hasattr(function, "skipped")]
    client = " + ".join(f"{name} {importlib.metadata.version(name)}" for name in module.PACKAGES)
    failures = {}
    for function in functions:
        failure = attempt(function)
        if failure:
            failures[function.__name__[5:]] = failure
    passed = [one.__name__[5:] for one in functions if one.__name__[5:] not in failures and not hasattr(one, "missing")]
    print(f"{'FAILED' if failures else 'passed'}: {client}: {', '.join(passed)}")
    for name, failure in failures.items():
        print(f"  failed: {name}: {failure}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main(sys.argv[1])
