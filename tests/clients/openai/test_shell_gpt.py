"""ShellGPT's `sgpt`."""

import os
import pathlib
import subprocess
import sys
import tempfile

from attempts import API_KEY, BASE_URL, MODEL, QUESTION

PACKAGES = ["shell-gpt", "openai"]
home = tempfile.mkdtemp()
SET = {"HOME": home, "API_BASE_URL": BASE_URL, "OPENAI_API_KEY": API_KEY, "DEFAULT_MODEL": MODEL}
SET["SHELL_INTERACTION"] = "false"


def sgpt(*arguments, **settings):
    command = [str(pathlib.Path(sys.executable).parent / "sgpt"), *arguments]
    environment = {**os.environ, **SET, **settings}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_stream():
    assert sgpt("--no-cache", "--no-functions", QUESTION)


def test_without_streams():
    assert sgpt("--no-cache", "--no-functions", QUESTION, DISABLE_STREAMING="true")


def test_code():
    assert sgpt("--no-cache", "--no-functions", "--no-md", "--code", "print hello")
