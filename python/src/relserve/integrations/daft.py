"""Columns of Daft: each batch of rows is one request.

    from relserve.integrations.daft import RelServeProvider, classify, relquery

    frame.select(relquery("Is this a complaint? {review}", ["review"], choice=["yes", "no"]))
    frame.select(classify(col("review"), ["praise", "complaint"]))

    daft.attach_provider(RelServeProvider())
    frame.select(prompt(col("review"), system_message="Is this a complaint?", provider="relserve"))
    frame.select(classify_text(col("review"), ["praise", "complaint"], provider="relserve"))

Workers read `RELSERVE_URL` and `RELSERVE_KEY`, unless the address and the key are given.
"""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from typing import Any, Dict, List, Optional, Sequence, Tuple, Union

import daft
from daft.ai.protocols import Prompter, PrompterDescriptor, TextClassifier, TextClassifierDescriptor
from daft.ai.provider import Provider
from daft.ai.typing import UDFOptions

from ..client import AsyncClient, Client
from ..result import Row


def relquery(
    template: str,
    columns: Sequence[str],
    *,
    batch_size: int = 4096,
    base_url: Optional[str] = None,
    api_key: Optional[str] = None,
    **options: Any,
) -> Any:
    """A column of answers: the template over these columns. A row that failed is null."""

    @daft.func.batch(return_dtype=daft.DataType.string(), batch_size=batch_size)  # type: ignore[untyped-decorator]
    def answer(*series: Any) -> List[Any]:
        table = {name: one.to_pylist() for name, one in zip(columns, series)}
        with Client(base_url, api_key, progress=False) as client:
            return client.relquery(table, template, **options).values

    return answer(*(daft.col(name) for name in columns))


def classify(
    text: Any,
    labels: Sequence[str],
    *,
    batch_size: int = 4096,
    base_url: Optional[str] = None,
    api_key: Optional[str] = None,
) -> Any:
    """The label that fits each text; null where a row failed."""

    @daft.func.batch(return_dtype=daft.DataType.string(), batch_size=batch_size)  # type: ignore[untyped-decorator]
    def label(texts: Any) -> List[Any]:
        with Client(base_url, api_key, progress=False) as client:
            return client.classify(texts.to_pylist(), list(labels)).values

    return label(text)


class RelServeProvider(Provider):
    """Of `prompt` and `classify_text`: their options are fields of `POST /v1/relqueries`, such as `max_tokens`.

    With `on_error="log"` or `"ignore"` a row that failed is null, and the others have their answers.
    """

    def __init__(
        self, name: str = "relserve", *, base_url: Optional[str] = None, api_key: Optional[str] = None
    ) -> None:
        self._name = name
        self._connection = (base_url, api_key)

    @property
    def name(self) -> str:
        """What `provider=` calls it."""
        return self._name

    def get_prompter(
        self,
        model: Optional[str] = None,
        return_format: Any = None,
        system_message: Optional[str] = None,
        **options: Any,
    ) -> PrompterDescriptor:
        """Of `prompt`; a model of Pydantic's is the form of answers."""
        return _PrompterDescriptor(self._name, self._connection, model, options, return_format, system_message)

    def get_text_classifier(self, model: Optional[str] = None, **options: Any) -> TextClassifierDescriptor:
        """Of `classify_text`."""
        return _TextClassifierDescriptor(self._name, self._connection, model, options)


@dataclass
class _Described:
    """What workers make a prompter or a classifier of."""

    provider: str
    connection: Tuple[Optional[str], Optional[str]]
    model: Optional[str]
    options: Dict[str, Any]

    def get_provider(self) -> str:
        return self.provider

    def get_model(self) -> str:
        return self.model or "relserve"

    def get_options(self) -> Dict[str, Any]:
        return self.options

    def get_udf_options(self) -> UDFOptions:
        options = super().get_udf_options()  # type: ignore[misc]
        # The client tries again by itself.
        options.max_retries = 0
        return options

    def fields(self) -> Dict[str, Any]:
        """Options that are the server's, not Daft's."""
        return {name: value for name, value in self.options.items() if name not in UDFOptions.__dataclass_fields__}


@dataclass
class _PrompterDescriptor(_Described, PrompterDescriptor):
    return_format: Any
    system_message: Optional[str]

    def instantiate(self) -> Prompter:
        return _Prompter(self)


class _Prompter(Prompter):
    """Daft asks for the rows of a batch one by one, all in one turn of its event loop: they are one relQuery."""

    def __init__(self, described: _PrompterDescriptor) -> None:
        self._described = described
        self._here = threading.local()

    async def prompt(self, messages: Tuple[Any, ...]) -> Any:
        """The answer of one row: its texts stand one behind the other."""
        if None in messages:
            return None
        if not all(isinstance(text, str) for text in messages):
            raise ValueError("a message must be a text")
        texts: Optional[List[str]] = getattr(self._here, "texts", None)
        if texts is None:
            texts = self._here.texts = []
            # It begins when all that this turn asks for has been asked.
            self._here.answers = asyncio.ensure_future(self._ask(texts))
        texts.append("".join(messages))
        place, answers = len(texts) - 1, self._here.answers
        return self._read((await answers)[place])

    async def _ask(self, texts: List[str]) -> List[Row]:
        self._here.texts = None
        described = self._described
        fields = {**described.fields(), "system": described.system_message}
        if described.return_format is not None:
            fields["json_schema"] = described.return_format.model_json_schema()
        async with AsyncClient(*described.connection, model=described.model, progress=False) as client:
            return (await client.relquery(texts, "{text}", **fields)).rows

    def _read(self, row: Row) -> Any:
        described = self._described
        if row.error is not None:
            if described.options.get("on_error", "raise") == "raise":
                raise row.error
            return None
        form = described.return_format
        return row.value if form is None else form.model_validate_json(row.value)


@dataclass
class _TextClassifierDescriptor(_Described, TextClassifierDescriptor):
    def instantiate(self) -> TextClassifier:
        return _TextClassifier(self)


class _TextClassifier(TextClassifier):
    def __init__(self, described: _TextClassifierDescriptor) -> None:
        self._described = described

    def classify_text(self, text: List[str], labels: Union[str, List[str]]) -> List[Any]:
        described = self._described
        given = [labels] if isinstance(labels, str) else labels
        with Client(*described.connection, model=described.model, progress=False) as client:
            result = client.classify(text, given, **described.fields())
            if described.options.get("on_error", "raise") == "raise":
                result.raise_for_errors()
            return result.values
