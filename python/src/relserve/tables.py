"""Tables of all kinds as columns and rows, and answers as a column of the same kind.

pandas, polars and pyarrow are recognised without being imported: who passes one of their tables has it.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import re
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Set

from .errors import MissingColumn

Cell = Any
Column = Any

# A template's fields; doubled braces are literal ones.
_FIELD = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")


class Table:
    """Columns by name, and how a column of the same kind is made."""

    def __init__(
        self,
        columns: Sequence[str],
        length: int,
        read: Callable[[str], Sequence[Any]],
        make_column: Callable[[List[Any]], Column],
    ) -> None:
        self.columns = list(columns)
        self.make_column = make_column
        self._length = length
        self._read = read

    def __len__(self) -> int:
        return self._length

    def cells(self, column: str) -> List[Cell]:
        """Cells of a column as JSON has them."""
        return [cell(value) for value in self._read(column)]

    def rows(self, columns: Sequence[str]) -> List[List[Cell]]:
        """Rows with the cells of these columns."""
        if not columns:
            return [[] for _ in range(len(self))]
        return [list(row) for row in zip(*(self.cells(column) for column in columns))]


def cell(value: Any) -> Cell:
    """A value as a cell: text, a number, a boolean or null; what is nested becomes JSON text."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, (datetime.datetime, datetime.date, datetime.time)):
        # pandas' missing time is a datetime that equals nothing, itself included.
        return value.isoformat() if value == value else None
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.decode("utf-8", errors="replace")
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, default=str)
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return cell(value.item())
    if hasattr(value, "tolist"):
        return cell(value.tolist())
    return None if type(value).__name__ in ("NAType", "NaTType") else str(value)


def read_table(table: Any, name: str = "text") -> Table:
    """A table of any kind that is known; a single column gets `name` where it has none of its own."""
    for is_kind, read in _KINDS:
        if is_kind(table):
            found: Table = read(table, name)
            return found
    raise TypeError(
        f"a table must be a pandas, polars or Arrow table or column, or a list of dicts or texts, "
        f"not {type(table).__module__}.{type(table).__name__}"
    )


def named_columns(template: str) -> List[str]:
    """The columns that a template names, each once; `*` is the record of the others."""
    names = (found.group(1) for found in _FIELD.finditer(template))
    return list(dict.fromkeys(name for name in names if name))


def sent_columns(table: Table, template: str, columns: Optional[Sequence[str]]) -> List[str]:
    """The columns that go to the server: all for a record, else those that the template names."""
    known = list(columns) if columns is not None else table.columns
    for name in known:
        if name not in table.columns:
            raise MissingColumn(f"the table has no column `{name}`, only {_listed(table.columns)}")
    named = named_columns(template)
    for name in named:
        if name != "*" and name not in known:
            raise MissingColumn(f"the template names column `{name}`, the table has {_listed(known)}")
    return known if "*" in named else [name for name in known if name in named]


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _is(module: str, *names: str) -> Callable[[Any], bool]:
    """Whether a value, or what its class inherits from, is called so."""

    def check(value: Any) -> bool:
        return any(
            kind.__module__.split(".")[0] == module and kind.__name__ in names for kind in type(value).__mro__
        )

    return check


def _pandas_column(values: List[Any], index: Any) -> Column:
    import pandas

    # Integers stay integers where a row failed: pandas would make them floats.
    kinds = {type(value) for value in values}
    return pandas.Series(values, index=index, dtype="Int64" if kinds == {int, type(None)} else None)


def _pandas_frame(frame: Any, _: str) -> Table:
    names: Dict[str, Any] = {str(column): column for column in frame.columns}
    return Table(
        list(names),
        len(frame),
        lambda column: list(frame[names[column]].tolist()),
        lambda values: _pandas_column(values, frame.index),
    )


def _pandas_series(series: Any, name: str) -> Table:
    column = str(series.name) if series.name is not None else name
    return Table(
        [column], len(series), lambda _: list(series.tolist()), lambda values: _pandas_column(values, series.index)
    )


def _polars_column(values: List[Any]) -> Column:
    import polars

    return polars.Series(values, strict=False)


def _polars_frame(frame: Any, _: str) -> Table:
    if type(frame).__name__ == "LazyFrame":
        frame = frame.collect()
    return Table(frame.columns, len(frame), lambda column: list(frame[column].to_list()), _polars_column)


def _polars_series(series: Any, name: str) -> Table:
    return Table([series.name or name], len(series), lambda _: list(series.to_list()), _polars_column)


def _arrow_column(values: List[Any]) -> Column:
    import pyarrow

    return pyarrow.array(values)


def _arrow_table(table: Any, _: str) -> Table:
    names = table.schema.names
    return Table(names, table.num_rows, lambda column: list(table.column(column).to_pylist()), _arrow_column)


def _arrow_array(array: Any, name: str) -> Table:
    return Table([name], len(array), lambda _: list(array.to_pylist()), _arrow_column)


def _columns(table: Mapping[str, Sequence[Any]], _: str) -> Table:
    lengths: Set[int] = {len(values) for values in table.values()}
    if len(lengths) > 1:
        raise ValueError(f"the columns have different lengths: {sorted(lengths)}")
    return Table(list(table), lengths.pop() if lengths else 0, lambda column: table[column], list)


def _rows(rows: Sequence[Any], name: str) -> Table:
    if not any(isinstance(row, Mapping) for row in rows):
        return Table([name], len(rows), lambda _: rows, list)
    for index, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise TypeError(f"row {index} is a {type(row).__name__}, others are dicts")
    names = list(dict.fromkeys(str(key) for row in rows for key in row))
    return Table(names, len(rows), lambda column: [row.get(column) for row in rows], list)


_KINDS: Sequence[Any] = (
    (_is("pandas", "DataFrame"), _pandas_frame),
    (_is("pandas", "Series"), _pandas_series),
    (_is("polars", "DataFrame", "LazyFrame"), _polars_frame),
    (_is("polars", "Series"), _polars_series),
    (_is("pyarrow", "Table", "RecordBatch"), _arrow_table),
    (_is("pyarrow", "Array", "ChunkedArray"), _arrow_array),
    (lambda table: isinstance(table, Mapping), _columns),
    (lambda table: isinstance(table, (list, tuple)), _rows),
    (_is("numpy", "ndarray"), lambda array, name: _rows(array.tolist(), name)),
)
