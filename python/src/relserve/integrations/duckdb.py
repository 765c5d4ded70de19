"""Cell functions as functions of DuckDB's SQL, vectorised: a vector of rows (2,048) is one request.

    from relserve.integrations.duckdb import register

    register(connection, Client(...))
    connection.sql("SELECT ai_classify(review, ['praise', 'complaint']) FROM reviews")
"""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Optional, Sequence

from ..client import Client
from . import client as used_client
from . import column
from ._sql import FUNCTIONS, NUMBER, TEXT, TEXTS

_TYPES: Mapping[str, str] = {TEXT: "VARCHAR", TEXTS: "VARCHAR[]", NUMBER: "BIGINT"}


def register(connection: Any, client: Optional[Client] = None, *, errors: str = "warn") -> None:
    """Gives a connection the functions `ai_ask`, `ai_classify`, ...; a row that failed is NULL."""
    for name, (parameters, result) in FUNCTIONS.items():
        connection.create_function(
            f"ai_{name}",
            _vectorised(name, len(parameters), result, client or used_client(), errors),
            [_TYPES[kind] for kind in parameters],
            _TYPES[result],
            type="arrow",
            # A model is asked about what is empty too: it may say that it is.
            null_handling="special",
        )


def _vectorised(name: str, parameters: int, result: str, client: Client, errors: str) -> Callable[..., Any]:
    import pyarrow

    types = {TEXT: pyarrow.string(), TEXTS: pyarrow.list_(pyarrow.string()), NUMBER: pyarrow.int64()}

    def run(columns: Sequence[Any]) -> Any:
        rows: List[Any] = list(zip(*(column.to_pylist() for column in columns)))
        if not rows:
            return pyarrow.array([], type=types[result])
        answers = client.cells([(name, *row) for row in rows])
        return pyarrow.array(column(answers, errors), type=types[result])

    # DuckDB counts the parameters.
    if parameters == 1:
        return lambda one: run([one])
    return lambda one, two: run([one, two])
