"""Simon Willison's `llm`, by `extra-openai-models.yaml`."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

from attempts import API_KEY, BASE_URL, MODEL, QUESTION

PACKAGES = ["llm"]
home = pathlib.Path(tempfile.mkdtemp())
(home / "extra-openai-models.yaml").write_text(
    f"- model_id: relserve\n  model_name: {MODEL}\n  api_base: {BASE_URL}\n  api_key_name: relserve\n"
    "  supports_schema: true\n  supports_tools: true\n",
    encoding="utf-8",
)


def llm(*arguments):
    command = [str(pathlib.Path(sys.executable).parent / "llm"), *arguments]
    environment = {**os.environ, "LLM_USER_PATH": str(home)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_prompt():
    llm("keys", "set", "relserve", "--value", API_KEY)
    assert llm("-m", "relserve", "-o", "max_tokens", "4", "--no-stream", QUESTION)


def test_stream():
    assert llm("-m", "relserve", "-o", "max_tokens", "4", QUESTION)


def test_schema():
    # Without other properties: the demo model would write some and never end.
    fields = {"is_positive": {"type": "boolean"}}
    schema = {"type": "object", "properties": fields, "required": ["is_positive"], "additionalProperties": False}
    said = llm("-m", "relserve", "-o", "max_tokens", "40", "--schema", json.dumps(schema), QUESTION)
    assert json.loads(said)["is_positive"] in (True, False)


def test_tools():
    code = "def rainy(is_wet: bool) -> str:\n    return 'rain' if is_wet else 'sun'\n"
    # What the model may call is its own affair; that it is asked with tools must be no error.
    assert llm("-m", "relserve", "-o", "max_tokens", "40", "--functions", code, QUESTION) is not None
