"""LiteLLM's proxy in front of the server: OpenAI's SDK asks the proxy, the proxy asks the server."""

import atexit
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from attempts import API_KEY, BASE_URL, MODEL, QUESTION
from openai import OpenAI

PACKAGES = ["litellm"]
MASTER_KEY = "sk-of-the-proxy"
MESSAGES = [{"role": "user", "content": QUESTION}]


def served(port):
    """Waits until the proxy answers; it has three minutes for that."""
    end = time.monotonic() + 180
    while time.monotonic() < end:
        try:
            return urllib.request.urlopen(f"http://127.0.0.1:{port}/health/liveliness", timeout=5)
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise TimeoutError("the proxy does not answer")


def started():
    """The address of a proxy that ends with this process."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    config = Path(folder.name) / "config.yaml"
    to = {"model": f"openai/{MODEL}", "api_base": BASE_URL, "api_key": API_KEY}
    # JSON is YAML.
    config.write_text(json.dumps({"model_list": [{"model_name": "sheet", "litellm_params": to}]}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sys.executable).with_name("litellm")
    command = [program, "--config", config, "--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"]
    environment = {**os.environ, "LITELLM_MASTER_KEY": MASTER_KEY}
    proxy = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    atexit.register(proxy.wait)
    atexit.register(proxy.terminate)
    served(port)
    return f"http://127.0.0.1:{port}/v1"


ADDRESS = started()
CLIENT = OpenAI(base_url=ADDRESS, api_key=MASTER_KEY, max_retries=0, timeout=120)


def test_chat():
    reply = CLIENT.chat.completions.create(model="sheet", messages=MESSAGES, max_tokens=20)
    assert reply.choices[0].message.content and reply.usage.completion_tokens > 0


def test_stream():
    chunks = CLIENT.chat.completions.create(model="sheet", messages=MESSAGES, max_tokens=20, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)


def test_structured_output():
    fields = {"is_positive": {"type": "boolean"}}
    schema = {"type": "object", "properties": fields, "required": ["is_positive"], "additionalProperties": False}
    wanted = {"type": "json_schema", "json_schema": {"name": "mood", "strict": True, "schema": schema}}
    reply = CLIENT.chat.completions.create(model="sheet", messages=MESSAGES, max_tokens=40, response_format=wanted)
    assert json.loads(reply.choices[0].message.content)["is_positive"] in (True, False)


def test_tools():
    parameters = {"type": "object", "properties": {"rainy": {"type": "boolean"}}, "required": ["rainy"]}
    tool = {"type": "function", "function": {"name": "weather", "parameters": parameters}}
    reply = CLIENT.chat.completions.create(
        model="sheet", messages=MESSAGES, max_tokens=40, tools=[tool], tool_choice="required"
    )
    assert json.loads(reply.choices[0].message.tool_calls[0].function.arguments)["rainy"] in (True, False)


def test_completion():
    assert CLIENT.completions.create(model="sheet", prompt=QUESTION, max_tokens=8).choices[0].text is not None


def test_responses():
    assert CLIENT.responses.create(model="sheet", input=QUESTION, max_output_tokens=20).output_text


def test_models():
    assert [model.id for model in CLIENT.models.list()] == ["sheet"]
