"""An accessor `ai` of pandas' columns and tables; importing this module registers it.

    import relserve.integrations.pandas

    df["label"] = df["review"].ai.classify(["praise", "complaint"])
    df["reply"] = df.ai.relquery("Answer this review of {film}: {review}")
"""

from __future__ import annotations

from typing import Any, Callable

import pandas

from ..functions import KINDS
from . import client, column


@pandas.api.extensions.register_series_accessor("ai")
class SeriesAi:
    """Cell functions over a column: the column is the text, or the input of `fill`."""

    def __init__(self, series: Any) -> None:
        self._series = series

    def __getattr__(self, function: str) -> Callable[..., Any]:
        if function not in KINDS:
            raise AttributeError(f"no cell function `{function}`; there are: {', '.join(KINDS)}")

        def run(*arguments: Any, errors: str = "warn", **options: Any) -> Any:
            own = [*arguments, self._series] if function == "fill" else [self._series, *arguments]
            return column(getattr(client(), function)(*own, **options), errors)

        return run

    def relquery(self, template: str, *, errors: str = "warn", **options: Any) -> Any:
        """A template over this column, as `{text}` or by its name."""
        return column(client().relquery(self._series, template, **options), errors)


@pandas.api.extensions.register_dataframe_accessor("ai")
class FrameAi:
    """A template over a table."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame

    def relquery(self, template: str, *, errors: str = "warn", **options: Any) -> Any:
        """Fills the template from each row; only the columns that it names are sent."""
        return column(client().relquery(self._frame, template, **options), errors)
