"""Cell functions as functions of DuckDB's SQL, vectorised: a vector of rows (2,048) is one request.

    from relserve.integrations.duckdb import register

    register(connection, Client(...))
    connection.sql("SELECT ai_classify(review, ['praise', 'complaint']) FROM reviews")
"""

from __future__ import annotations

from typing import Any, Callable, List, Mapping, Optional, Sequence, Tuple

from ..client import Client
from . import client as used_client
from . import column

_TEXT, _LIST, _NUMBER = "VARCHAR", "VARCHAR[]", "BIGINT"

# The arguments and the result of each function; SQL has no optional ones, so that these are the usual.
FUNCTIONS: Mapping[str, Tuple[Sequence[str], str]] = {
    "ask": ((_TEXT,), _TEXT),
    "classify": ((_TEXT, _LIST), _TEXT),
    "extract": ((_TEXT, _TEXT), _TEXT),
    "summarize": ((_TEXT,), _TEXT),
    "translate": ((_TEXT, _TEXT), _TEXT),
    "tag": ((_TEXT, _LIST), _TEXT),
    "format": ((_TEXT, _TEXT), _TEXT),
    "edit": ((_TEXT, _TEXT), _TEXT),
    "list": ((_TEXT, _NUMBER), _LIST),
    "rate": ((_TEXT,), _NUMBER),
}


def register(connection: Any, client: Optional[Client] = None, *, errors: str = "warn") -> None:
    """Gives a connection the functions `ai_ask`, `ai_classify`, ...; a row that failed is NULL."""
    for name, (parameters, result) in FUNCTIONS.items():
        connection.create_function(
            f"ai_{name}",
            _vectorised(name, len(parameters), result, client or used_client(), errors),
            list(parameters),
            result,
            type="arrow",
            # A model is asked about what is empty too: it may say that it is.
            null_handling="special",
        )


def _vectorised(name: str, parameters: int, result: str, client: Client, errors: str) -> Callable[..., Any]:
    import pyarrow

    types = {_TEXT: pyarrow.string(), _LIST: pyarrow.list_(pyarrow.string()), _NUMBER: pyarrow.int64()}

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
