"""Tables, events, errors and results, without a server."""

import ast
import datetime
import decimal
import math
import pathlib

import pytest

import relserve
from relserve import errors, tables
from relserve._events import EventReader
from relserve.functions import call_arguments
from relserve.result import Result, Row

SOURCES = pathlib.Path(relserve.__file__).parent


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("text", "text"),
        (None, None),
        (True, True),
        (3, 3),
        (1.5, 1.5),
        (math.nan, None),
        (math.inf, None),
        (datetime.date(2026, 1, 2), "2026-01-02"),
        (decimal.Decimal("1.10"), "1.10"),
        (b"bytes", "bytes"),
        ({"a": [1]}, '{"a": [1]}'),
    ],
)
def test_a_value_becomes_a_cell(value, expected):
    assert tables.cell(value) == expected


def test_events_are_read_however_they_are_cut():
    stream = 'event: row\ndata: {"text": "é"}\n\n: still here\n\nevent: done\ndata: {"id": 1}\n\n'.encode()
    for size in (1, 2, 3, 7, len(stream)):
        reader = EventReader()
        chunks = [stream[at : at + size] for at in range(0, len(stream), size)]
        events = [event for chunk in chunks for event in reader.feed(chunk)]
        assert events == [("row", {"text": "é"}), ("done", {"id": 1})]


@pytest.mark.parametrize(
    ("message", "limit"),
    [
        (
            "904 prompt tokens and 4 output tokens exceed the context of 512 tokens. This model's maximum context "
            "length is 512 tokens: please reduce the length of the prompt or of its output",
            512,
        ),
        ("`rows` exceeds the limit of 20000 rows", 20000),
        ("51000 rows are waiting already and the limit is 50000; retry after 1 s", 50000),
        ("invalid `temperature`: must be a number from 0 to 2", 2),
        ("no such model", None),
    ],
)
def test_an_error_knows_the_limit_that_it_names(message, limit):
    assert errors.ServerError(message).limit == limit


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (400, None, relserve.InvalidRequest),
        (401, None, relserve.Unauthorized),
        (413, None, relserve.TooLarge),
        (429, None, relserve.Overloaded),
        (429, "budget_spent", relserve.BudgetSpent),
        (504, None, relserve.DeadlinePassed),
        (500, None, relserve.ServerError),
    ],
)
def test_each_status_has_its_exception(status, code, kind):
    error = errors.server_error(status, {"error": {"message": "no", "param": "rows", "code": code}})
    assert type(error) is kind
    assert (error.field, error.status, error.code) == ("rows", status, code)


def test_a_row_error_counts_rows_of_the_table_and_not_of_the_window():
    error = errors.row_error(10_001, 1, {"message": "invalid `rows[1].a`: is missing", "param": "rows[1].a"})
    assert (error.index, error.field) == (10_001, "rows[10001].a")
    assert "rows[10001]" in error.message


def test_a_template_names_its_columns():
    assert tables.named_columns("{a} {{b}} {c} {a} {*}") == ["a", "c", "*"]


def test_only_the_columns_that_a_template_names_are_sent():
    table = tables.read_table([{"a": 1, "b": 2, "c": 3}])
    assert tables.sent_columns(table, "{c} {a}", None) == ["a", "c"]
    assert tables.sent_columns(table, "{c} {*}", None) == ["a", "b", "c"]
    assert tables.sent_columns(table, "{*}", ["b"]) == ["b"]
    with pytest.raises(relserve.MissingColumn, match="`d`.*`a`, `b`, `c`"):
        tables.sent_columns(table, "{d}", None)


def test_what_is_no_table_is_refused_by_its_type():
    with pytest.raises(TypeError, match="not builtins.int"):
        tables.read_table(5)
    with pytest.raises(TypeError, match="row 1 is a str"):
        tables.read_table([{"a": 1}, "b"])


def test_a_list_is_a_column_where_a_text_is_expected_and_one_argument_where_a_list_is():
    calls, column = call_arguments("classify", [["x", "y"], ["good", "bad"]])
    assert calls == [["x", ["good", "bad"]], ["y", ["good", "bad"]]]
    assert len(column) == 2
    assert call_arguments("classify", ["x", ["good", "bad"]]) == ([["x", ["good", "bad"]]], None)
    assert call_arguments("fill", [{"a": "A"}, ["b"]])[0] == [[[["a", "A"]], "b"]]
    with pytest.raises(ValueError, match="different lengths"):
        call_arguments("ask", [["x", "y"], ["z"]])


def test_a_notebook_shows_errors_and_no_markup_of_a_cell():
    result = Result(12)
    result.rows[0] = Row(0, value="<script>")
    result.rows[1] = Row(1, error=errors.RowError(1, "too long"))
    shown = result._repr_html_()
    assert "&lt;script&gt;" in shown and "<script>" not in shown
    assert "too long" in shown and "and 2 more rows" in shown and "10 pending" not in shown.split("<p>")[0]
    assert result.status == "partial" and result.pending == list(range(2, 12))


def test_every_source_file_is_python_3_9():
    for path in SOURCES.rglob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"), str(path), feature_version=(3, 9))
