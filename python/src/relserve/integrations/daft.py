"""Columns of Daft: each batch of rows is one request.

    from relserve.integrations.daft import classify, relquery

    frame.select(relquery("Is this a complaint? {review}", ["review"], choice=["yes", "no"]))
    frame.select(classify(col("review"), ["praise", "complaint"]))

Workers read `RELSERVE_URL` and `RELSERVE_KEY`, unless the address and the key are given.
"""

from __future__ import annotations

from typing import Any, List, Optional, Sequence

import daft

from ..client import Client


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
