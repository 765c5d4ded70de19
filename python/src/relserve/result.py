"""What came back: a value or an error for each row, in the order of the table."""

from __future__ import annotations

import dataclasses
import html
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Union, overload

from .errors import RowError

# Rows that a notebook shows.
_SHOWN_ROWS = 10


@dataclasses.dataclass
class Row:
    """One row's answer."""

    index: int
    value: Any = None
    error: Optional[RowError] = None
    finish_reason: Optional[str] = None
    # How likely the answer was among those that its constraint lists, 0 to 1.
    probability: Optional[float] = None
    pending: bool = False


@dataclasses.dataclass(frozen=True)
class Ticket:
    """Where the rest of a window will be after its deadline: `rows` are places in the table."""

    id: str
    rows: Sequence[int]


@dataclasses.dataclass
class Usage:
    """Tokens, added up over the windows of a table."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    computed_tokens: int = 0
    rows_from_cache: int = 0
    rows_deduplicated: int = 0

    def add(self, told: Mapping[str, Any]) -> None:
        """Adds what the server said of one window."""
        for field in dataclasses.fields(self):
            value = told.get(field.name)
            setattr(self, field.name, getattr(self, field.name) + (value if isinstance(value, int) else 0))
        details = told.get("prompt_tokens_details") or {}
        self.cached_tokens += details.get("cached_tokens") or 0


class Result(Sequence[Any]):
    """Answers over a table. As a sequence it is the values, so it can be assigned to a new column."""

    def __init__(self, length: int, make_column: Callable[[List[Any]], Any] = list) -> None:
        self.rows: List[Row] = [Row(index, pending=True) for index in range(length)]
        self.usage = Usage()
        self.model: Optional[str] = None
        self.ids: List[str] = []
        self.tickets: List[Ticket] = []
        # What a client needs to go on with it.
        self.job: Any = None
        self._make_column = make_column

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, at: int) -> Any: ...

    @overload
    def __getitem__(self, at: slice) -> List[Any]: ...

    def __getitem__(self, at: Union[int, slice]) -> Any:
        return [row.value for row in self.rows[at]] if isinstance(at, slice) else self.rows[at].value

    def __iter__(self) -> Iterator[Any]:
        return iter(self.values)

    @property
    def values(self) -> List[Any]:
        """The values; `None` where a row failed or is pending."""
        return [row.value for row in self.rows]

    @property
    def column(self) -> Any:
        """The values as a column of the table's own kind, with its index."""
        return self._make_column(self.values)

    @property
    def errors(self) -> Dict[int, RowError]:
        """What is wrong with single rows, by their place in the table."""
        return {row.index: row.error for row in self.rows if row.error is not None}

    @property
    def pending(self) -> List[int]:
        """Rows without an answer yet: a deadline passed. `Client.resume` waits for them."""
        return [row.index for row in self.rows if row.pending]

    @property
    def status(self) -> str:
        """`completed` or `partial`."""
        return "partial" if self.pending else "completed"

    def shaped(self, table: Any) -> "Result":
        """This result, whose column is of the kind of that table, if there is one."""
        if table is not None:
            self._make_column = table.make_column
        return self

    def raise_for_errors(self) -> "Result":
        """Raises the first row's error, if there is one."""
        for error in self.errors.values():
            raise error
        return self

    def to_dicts(self) -> List[Dict[str, Any]]:
        """A record for each row, for any kind of table: `pandas.DataFrame(result.to_dicts())`."""
        return [
            {
                "index": row.index,
                "value": row.value,
                "error": row.error.message if row.error else None,
                "finish_reason": row.finish_reason,
                "probability": row.probability,
            }
            for row in self.rows
        ]

    def summary(self) -> str:
        """One line: how many rows, how it went, what it took."""
        usage = self.usage
        parts = [
            f"{len(self.rows)} rows",
            self.status,
            f"{len(self.errors)} failed" if self.errors else "",
            f"{len(self.pending)} pending" if self.pending else "",
            f"{usage.prompt_tokens} prompt tokens ({usage.computed_tokens} computed)",
            f"{usage.completion_tokens} output tokens",
            f"{usage.rows_from_cache} from the cache" if usage.rows_from_cache else "",
            self.model or "",
        ]
        return ", ".join(part for part in parts if part)

    def __repr__(self) -> str:
        return f"<Result: {self.summary()}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the first rows, status and usage."""

        def line(row: Row) -> str:
            said = row.error.message if row.error else "pending" if row.pending else str(row.value)
            style = ' style="color: #b00020"' if row.error else ""
            return f"<tr><th>{row.index}</th><td{style}>{html.escape(said)}</td></tr>"

        lines = "".join(line(row) for row in self.rows[:_SHOWN_ROWS])
        rest = len(self.rows) - _SHOWN_ROWS
        more = f"<tr><th></th><td>and {rest} more rows</td></tr>" if rest > 0 else ""
        return f"<table>{lines}{more}</table><p>{html.escape(self.summary())}</p>"
