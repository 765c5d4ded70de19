"""The cell functions of a sheet over columns, as methods that the clients share.

`KINDS` is what the server's catalogue says (`GET /v1/catalogue`; a test compares the two): which arguments there
are, and which of them are texts, so that a list there is a column and not one argument.
"""

from __future__ import annotations

from typing import Any, Dict, Generic, List, Mapping, Optional, Sequence, Tuple, TypeVar

from .tables import Table, cell, read_table

R = TypeVar("R")

KINDS: Mapping[str, Sequence[str]] = {
    "ask": ("text", "text"),
    "classify": ("text", "list"),
    "extract": ("text", "text"),
    "summarize": ("text", "text"),
    "translate": ("text", "text"),
    "tag": ("text", "list"),
    "format": ("text", "text"),
    "edit": ("text", "text"),
    "fill": ("pairs", "text"),
    "list": ("text", "number"),
    "rate": ("text", "text", "number", "number"),
}


def call_arguments(function: str, arguments: Sequence[Any]) -> Tuple[List[List[Any]], Optional[Table]]:
    """Arguments of one call for each row, and the first argument that is a column."""
    kinds = KINDS.get(function, ())
    columns: Dict[int, Table] = {}
    constants: Dict[int, Any] = {}
    for place, argument in enumerate(arguments):
        kind = kinds[place] if place < len(kinds) else "text" if place == 0 else "list"
        if kind in ("text", "number") and not _is_scalar(argument):
            columns[place] = read_table(argument)
        else:
            constants[place] = _constant(argument)
    lengths = {len(table) for table in columns.values()}
    if len(lengths) > 1:
        raise ValueError(f"the columns have different lengths: {sorted(lengths)}")
    cells = {place: table.cells(_only_column(table)) for place, table in columns.items()}
    length = lengths.pop() if lengths else 1
    places = range(len(arguments))
    calls = [[cells[place][row] if place in cells else constants[place] for place in places] for row in range(length)]
    return calls, next(iter(columns.values()), None)


def _is_scalar(argument: Any) -> bool:
    return argument is None or isinstance(argument, (str, int, float, bool))


def _constant(argument: Any) -> Any:
    """An argument that all rows share; a column of labels is the list of them."""
    if _is_scalar(argument):
        return argument
    if isinstance(argument, Mapping):
        return [[cell(key), cell(value)] for key, value in argument.items()]
    if isinstance(argument, (list, tuple)):
        return [_constant(item) if isinstance(item, (list, tuple)) else cell(item) for item in argument]
    table = read_table(argument)
    return table.cells(_only_column(table))


def _only_column(table: Table) -> str:
    if len(table.columns) != 1:
        raise ValueError(f"an argument is one column, not {len(table.columns)}")
    return table.columns[0]


class CellFunctions(Generic[R]):
    """Each takes columns or single texts, runs as one request and answers with a value for each row."""

    def map(self, function: str, *arguments: Any, **options: Any) -> R:
        """Any function of the catalogue, by its name."""
        raise NotImplementedError

    def _map(self, function: str, arguments: Sequence[Any], options: Mapping[str, Any]) -> R:
        """Leaves out optional arguments at the end."""
        given = list(arguments)
        while given and given[-1] is None:
            given.pop()
        return self.map(function, *given, **options)

    def ask(self, prompt: Any, context: Any = None, **options: Any) -> R:
        """Answers a question, with cells as context."""
        return self._map("ask", [prompt, context], options)

    def classify(self, text: Any, labels: Any, **options: Any) -> R:
        """Gives the one label that fits the text."""
        return self._map("classify", [text, labels], options)

    def extract(self, text: Any, what: Any, **options: Any) -> R:
        """Copies out of the text what is asked for."""
        return self._map("extract", [text, what], options)

    def summarize(self, text: Any, format: Any = None, **options: Any) -> R:
        """Shortens the text."""
        return self._map("summarize", [text, format], options)

    def translate(self, text: Any, language: Any, **options: Any) -> R:
        """Translates the text."""
        return self._map("translate", [text, language], options)

    def tag(self, text: Any, tags: Any = None, **options: Any) -> R:
        """Gives all tags that fit the text."""
        return self._map("tag", [text, tags], options)

    def format(self, text: Any, target: Any, **options: Any) -> R:
        """Rewrites the value in a target format."""
        return self._map("format", [text, target], options)

    def edit(self, text: Any, task: Any, **options: Any) -> R:
        """Applies an instruction to the text."""
        return self._map("edit", [text, task], options)

    def fill(self, examples: Any, input: Any, **options: Any) -> R:
        """Continues a column from examples: pairs, or a dict of them."""
        return self._map("fill", [examples, input], options)

    def list(self, prompt: Any, count: Any = None, **options: Any) -> R:
        """Lists items."""
        return self._map("list", [prompt, count], options)

    def rate(self, text: Any, criterion: Any = None, low: Any = None, high: Any = None, **options: Any) -> R:
        """Rates the text with an integer of the scale."""
        return self._map("rate", [text, criterion, low, high], options)
