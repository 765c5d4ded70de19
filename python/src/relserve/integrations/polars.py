"""A namespace `ai` of polars' expressions, columns and tables; importing this module registers it.

    import relserve.integrations.polars

    lazy.with_columns(label=pl.col("review").ai.classify(["praise", "complaint"]))
    frame.with_columns(frame.ai.relquery("Answer this review of {film}: {review}").alias("reply"))
"""

from __future__ import annotations

from typing import Any, Callable

import polars

from ..functions import KINDS
from . import client, column

_TYPES = {"rate": polars.Int64, "list": polars.List(polars.String)}


def _run(series: Any, function: str, arguments: Any, errors: str, options: Any) -> Any:
    own = [*arguments, series] if function == "fill" else [series, *arguments]
    found = column(getattr(client(), function)(*own, **options), errors)
    # A column of nothing but gaps has the function's type all the same.
    return found.cast(_TYPES.get(function, polars.String)).alias(series.name)


def _check(function: str) -> None:
    if function not in KINDS:
        raise AttributeError(f"no cell function `{function}`; there are: {', '.join(KINDS)}")


@polars.api.register_series_namespace("ai")
class SeriesAi:
    """Cell functions over a column."""

    def __init__(self, series: Any) -> None:
        self._series = series

    def __getattr__(self, function: str) -> Callable[..., Any]:
        _check(function)

        def run(*arguments: Any, errors: str = "warn", **options: Any) -> Any:
            return _run(self._series, function, arguments, errors, options)

        return run


@polars.api.register_expr_namespace("ai")
class ExprAi:
    """Cell functions in an expression: one request when it is evaluated, of a lazy frame too."""

    def __init__(self, expr: Any) -> None:
        self._expr = expr

    def __getattr__(self, function: str) -> Callable[..., Any]:
        _check(function)

        def run(*arguments: Any, errors: str = "warn", **options: Any) -> Any:
            return self._expr.map_batches(
                lambda series: _run(series, function, arguments, errors, options),
                return_dtype=_TYPES.get(function, polars.String),
                # As a whole: an expression that may be cut would send a request for each part.
                is_elementwise=False,
            )

        return run


@polars.api.register_dataframe_namespace("ai")
class FrameAi:
    """A template over a table."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def relquery(self, template: str, *, errors: str = "warn", **options: Any) -> Any:
        """Fills the template from each row; only the columns that it names are sent."""
        return column(client().relquery(self._frame, template, **options), errors)
