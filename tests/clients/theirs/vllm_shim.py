"""A plugin of pytest that runs vLLM's own tests against RelServe, with no vLLM installed.

usage: RELSERVE_ADDRESS=http://.. pytest -p vllm_shim .. (run.sh), the working folder being the unpacked source.

- `RemoteOpenAIServer`, which would start `vllm serve`, hands out the server that runs.
- Whatever else tests import of vLLM, of their own helpers or of PyTorch is a name that stands for nothing: a test that
  only imports it runs, one that uses it is skipped and says what it needs.
- `vllm.toml` says why what is not run is not, and which tests fail for a known reason: those must fail.
"""

import importlib.abc
import importlib.machinery
import os
import re
import sys
import types
from pathlib import Path
from urllib.parse import urlsplit

import anthropic
import openai
import pytest
from gguf_tokenizer import Tokenizer
from results import Results, reason, table

TABLE = table("vllm.toml")
ADDRESS = os.environ["RELSERVE_ADDRESS"]
TOKENIZER = Tokenizer(os.environ["RELSERVE_MODEL"])


class Absent:
    """A name that is not here: it may be imported, named and subclassed; whoever uses it is skipped."""

    def __init__(self, name):
        self.absent = name

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self.absent}.{name}")

    def __call__(self, *_, **__):
        pytest.skip(f"needs {self.absent}", allow_module_level=True)

    __iter__ = __getitem__ = __len__ = __enter__ = __bool__ = __add__ = __call__

    def __or__(self, _):
        return self

    __ror__ = __or__

    def __mro_entries__(self, _):
        return (type("Base", (), {"__init__": lambda *_, **__: self()}),)


class Platform:
    """No accelerator of any kind."""

    def __getattr__(self, _):
        return lambda *_: False


class RemoteOpenAIServer:
    """The server that runs, whatever model and arguments a test would start its own with."""

    DUMMY_API_KEY = "token-abc123"

    def __init__(self, model, vllm_serve_args, **_):
        for argument, why in TABLE["arguments"].items():
            if argument in vllm_serve_args:
                pytest.skip(why)
        self.host, self.port = urlsplit(ADDRESS).hostname, urlsplit(ADDRESS).port
        self.url_root, self.model = ADDRESS, model

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def url_for(self, *parts):
        return "/".join([ADDRESS, *(part.strip("/") for part in parts if part)])

    def _options(self, options, path=""):
        return {"base_url": ADDRESS + path, "api_key": self.DUMMY_API_KEY, "max_retries": 0, "timeout": 120} | options

    def get_client(self, **options):
        return openai.OpenAI(**self._options(options, "/v1"))

    def get_async_client(self, **options):
        return openai.AsyncOpenAI(**self._options(options, "/v1"))

    def get_client_anthropic(self, **options):
        return anthropic.Anthropic(**self._options(options))

    def get_async_client_anthropic(self, **options):
        return anthropic.AsyncAnthropic(**self._options(options))


class Reply(types.SimpleNamespace):
    """A reply's JSON with its fields as attributes, where vLLM's tests read it as a class of vLLM's."""

    @classmethod
    def model_validate(cls, value):
        if isinstance(value, dict):
            return cls(**{name: cls.model_validate(each) for name, each in value.items()})
        return [cls.model_validate(each) for each in value] if isinstance(value, list) else value


# What is not here of itself and has a stand-in that means the same to a test.
STAND_INS = {
    "tests.utils.RemoteOpenAIServer": RemoteOpenAIServer,
    "tests.utils.ROCM_EXTRA_ARGS": [],
    "tests.utils.ROCM_ENV_OVERRIDES": {},
    "torch.inference_mode": lambda: lambda function: function,
    "torch.iinfo": lambda _: types.SimpleNamespace(min=-(2**63), max=2**63 - 1),
    "transformers.AutoTokenizer": types.SimpleNamespace(from_pretrained=lambda *_, **__: TOKENIZER),
    "vllm.config.ModelConfig": lambda **_: types.SimpleNamespace(get_vocab_size=lambda: len(TOKENIZER)),
    "vllm.entrypoints.pooling.embed.protocol.EmbeddingResponse": Reply,
    "vllm.entrypoints.pooling.pooling.protocol.PoolingResponse": Reply,
    "vllm.entrypoints.pooling.scoring.protocol.RerankResponse": Reply,
    "vllm.entrypoints.pooling.scoring.protocol.ScoreResponse": Reply,
    "vllm.platforms.current_platform": Platform(),
    "vllm.tokenizers.get_tokenizer": lambda *_, **__: TOKENIZER,
    # A test that fetches an adapter never reads it here.
    "vllm.transformers_utils.repo_utils.hf_api": lambda: types.SimpleNamespace(
        snapshot_download=lambda repo_id, **_: repo_id
    ),
}
ABSENT = (
    *("vllm", "tests.utils", "tests.conftest", "tests.models", "tests.v1", "torch", "transformers", "safetensors"),
    *("sentence_transformers", "mteb", "PIL", "fastapi", "starlette"),
)


class Stubs(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds the modules that are not here."""

    def find_spec(self, name, _path, _target=None):
        if any(name == root or name.startswith(f"{root}.") for root in ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def exec_module(self, module):
        def attribute(name):
            if name.startswith("__"):
                raise AttributeError(name)
            full = f"{module.__name__}.{name}"
            return STAND_INS.get(full, Absent(full))

        module.__getattr__ = attribute


sys.meta_path.insert(0, Stubs())


def name_of(node):
    """A test's name below vLLM's tests of its entry points."""
    return node.removeprefix("tests/entrypoints/")


def asks_a_server(path):
    """Whether a file's tests send requests; others call vLLM's own Python code."""
    return re.search(r"RemoteOpenAIServer|client: openai\.", path.read_text()) is not None


class Reporter:
    """One line for each test, and the counts."""

    def __init__(self):
        self.results = Results(TABLE["gaps"])
        # Pytest may ask twice about a path.
        self.skipped_paths, self.without_server = set(), set()

    def pytest_ignore_collect(self, collection_path):
        name = name_of(str(collection_path.relative_to(Path.cwd())))
        why = reason(TABLE["skipped"], name)
        if why and name not in self.skipped_paths:
            self.skipped_paths.add(name)
            self.results.say("skipped", name, why)
        if why:
            return True
        if name.endswith(".py") and collection_path.name.startswith("test_") and not asks_a_server(collection_path):
            self.without_server.add(name)
            return True

    def pytest_collectreport(self, report):
        if report.skipped:
            self.skip(report)
        elif report.failed:
            self.results.say("FAILED", name_of(report.nodeid), f"cannot be collected\n{report.longreprtext}")

    def pytest_collection_modifyitems(self, items):
        """Answers are drawn, and a small model's may have no end: what should work is tried twice."""
        for item in items:
            if not reason(TABLE["gaps"], name_of(item.nodeid)):
                item.add_marker(pytest.mark.flaky(reruns=1))

    def pytest_runtest_setup(self, item):
        why = reason(TABLE["skipped"], name_of(item.nodeid))
        if why:
            pytest.skip(why)

    def pytest_runtest_logreport(self, report):
        if report.outcome == "rerun":
            return
        if report.skipped:
            self.skip(report)
        elif report.failed:
            self.results.ran(name_of(report.nodeid), report.longreprtext)
        elif report.when == "call":
            self.results.ran(name_of(report.nodeid), None)

    def skip(self, report):
        self.results.say("skipped", name_of(report.nodeid), report.longrepr[2].removeprefix("Skipped: "))

    def pytest_sessionfinish(self, session):
        print(f"not run: {len(self.without_server)} files that test vLLM's own Python code and ask no server")
        # Pytest's own code speaks of gaps as failures.
        session.exitstatus = self.results.end("vLLM's tests")


def pytest_configure(config):
    config.pluginmanager.register(Reporter())


@pytest.fixture(scope="session")
def hf_runner():
    pytest.skip("compares with the model's own weights, run by Transformers")
