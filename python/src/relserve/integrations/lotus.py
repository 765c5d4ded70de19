"""A model of LOTUS whose batch is one relQuery, not a request for each row.

    from relserve.integrations.lotus import RelQueryLM

    lotus.settings.configure(lm=RelQueryLM("NAME"))
    table.sem_filter("{review} is positive")

LOTUS hands a model one conversation for each row. Where all have the same system message, or none, and then one text of
the user, and no option is set that a relQuery has no word for, they go as one relQuery. Else a warning says why, and
they go as `LM` sends them, as chats: few-shot examples, images, and the log probabilities that a cascade reads.
A list of answers is set as for chats: `extra_body={"structured_outputs": {"choice": ["True", "False"]}}`. LOTUS's own
cache and limits know of chats alone: the server has a cache and limits of its own.
"""

from __future__ import annotations

import os
import warnings
from typing import Any, Dict, List, Mapping, Optional, Tuple

import lotus
from lotus.models import LM
from lotus.types import LMOutput

from ..client import Client
from ..result import Result

Messages = List[Dict[str, Any]]

# LOTUS's options that a relQuery has too, and what it calls them.
_OPTIONS: Mapping[str, str] = {
    "max_completion_tokens": "max_tokens",
    **{name: name for name in ("max_tokens", "seed", "stop", "temperature", "top_p")},
}
# Forms of answers in `structured_outputs`, and what `Client.relquery` calls them.
_FORMS: Mapping[str, str] = {"choice": "choice", "regex": "regex", "json": "json_schema"}


class RelQueryLM(LM):
    """`model` is a name that the server lists; other settings are those of `LM`."""

    def __init__(
        self, model: str, *, base_url: Optional[str] = None, api_key: Optional[str] = None, **settings: Any
    ) -> None:
        name = model[len("openai/") :] if model.startswith("openai/") else model
        self._client = Client(base_url, api_key, model=name)
        # LiteLLM wants a key also where the server has none.
        key = api_key or os.environ.get("RELSERVE_KEY") or "none"
        super().__init__(f"openai/{name}", api_base=f"{self._client.base_url}/v1", api_key=key, **settings)

    def __call__(
        self,
        messages: List[Messages],
        show_progress_bar: bool = True,
        progress_bar_desc: str = "Processing uncached messages",
        **options: Any,
    ) -> LMOutput:
        """An answer for each conversation."""
        if not messages:
            return LMOutput(outputs=[], logprobs=None)
        try:
            system, texts = _one_form(messages)
            asked = _asked({**self.kwargs, **options})
        except _NotOneForm as reason:
            warnings.warn(f"these go as chats, not as one relQuery: {reason}", stacklevel=2)
            return super().__call__(messages, show_progress_bar, progress_bar_desc, **options)
        progress = None if show_progress_bar else False
        result = self._client.relquery(texts, "{text}", system=system, progress=progress, **asked)
        result.raise_for_errors()
        self._count(result)
        return LMOutput(outputs=result.values, logprobs=None)

    def _count(self, result: Result) -> None:
        for usage in (self.stats.virtual_usage, self.stats.physical_usage):
            usage.prompt_tokens += result.usage.prompt_tokens
            usage.completion_tokens += result.usage.completion_tokens
            usage.total_tokens += result.usage.prompt_tokens + result.usage.completion_tokens
            usage.cached_prompt_tokens += result.usage.cached_tokens
        cut = sum(row.finish_reason == "length" for row in result.rows)
        if cut:
            lotus.logger.warning(f"{cut} of {len(result)} answers were cut at max_tokens ({self.max_tokens})")


class _NotOneForm(Exception):
    """Why conversations are not the rows of one relQuery."""


def _one_form(messages: List[Messages]) -> Tuple[Optional[str], List[str]]:
    """The system message of all conversations, and the user's text of each."""
    first = messages[0]
    shared = first[:-1]
    if len(shared) > 1 or any(message["role"] != "system" for message in shared):
        raise _NotOneForm("a conversation has more than a system message and a text")
    texts = []
    for conversation in messages:
        if conversation[:-1] != shared or conversation[-1]["role"] != "user":
            raise _NotOneForm("the conversations begin differently")
        texts.append(_text(conversation[-1]))
    return (_text(shared[0]) if shared else None), texts


def _text(message: Dict[str, Any]) -> str:
    content = message["content"]
    if not isinstance(content, str):
        raise _NotOneForm("a message has parts")
    return content


def _asked(options: Mapping[str, Any]) -> Dict[str, Any]:
    """LOTUS's options as a relQuery's; those of the connection are the client's."""
    asked: Dict[str, Any] = {}
    for name, value in options.items():
        if name in ("api_base", "api_key", "timeout") or value is None or value is False:
            continue
        if name in _OPTIONS:
            asked[_OPTIONS[name]] = value
        elif name == "response_format":
            asked["json_schema"] = _schema(value)
        elif name == "extra_body":
            asked.update(_form(value))
        else:
            raise _NotOneForm(f"a relQuery has no `{name}`")
    return asked


def _form(extra_body: Mapping[str, Any]) -> Dict[str, Any]:
    """The form of answers that vLLM's field tells."""
    wanted = extra_body.get("structured_outputs", {})
    for name in [*extra_body, *wanted]:
        if name not in ("structured_outputs", *_FORMS):
            raise _NotOneForm(f"a relQuery has no `{name}`")
    return {_FORMS[name]: value for name, value in wanted.items()}


def _schema(response_format: Any) -> Dict[str, Any]:
    """The JSON schema of a response format."""
    if hasattr(response_format, "model_json_schema"):
        found: Dict[str, Any] = response_format.model_json_schema()
        return found
    if response_format["type"] == "json_object":
        return {"type": "object"}
    if response_format["type"] != "json_schema":
        raise _NotOneForm(f"a relQuery has no format `{response_format['type']}`")
    schema: Dict[str, Any] = response_format["json_schema"]["schema"]
    return schema
