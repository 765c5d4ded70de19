"""pandas, polars and Arrow tables, and the accessors of the first two."""

import warnings

import pytest

import relserve

pandas = pytest.importorskip("pandas")
polars = pytest.importorskip("polars")
pyarrow = pytest.importorskip("pyarrow")
import relserve.integrations.pandas  # noqa: E402, F401
import relserve.integrations.polars  # noqa: E402, F401

DATA = {"review": ["A wonderful film.", "Two lost hours.", None], "year": [1994, 2003, 2020]}
LABELS = ["praise", "complaint"]


def tables():
    return {
        "pandas": pandas.DataFrame(DATA, index=["x", "y", "z"]),
        "polars": polars.DataFrame(DATA),
        "lazy": polars.LazyFrame(DATA),
        "arrow": pyarrow.table(DATA),
        "batch": pyarrow.RecordBatch.from_pydict(DATA),
        "columns": DATA,
        "records": [dict(zip(DATA, row)) for row in zip(*DATA.values())],
    }


def test_tables_of_all_kinds_have_the_same_answers_in_a_column_of_their_kind(client):
    results = {kind: client.relquery(table, "{year}: {review}", max_tokens=3) for kind, table in tables().items()}
    expected = results["records"].values
    assert len(expected) == 3 and None not in expected
    assert all(result.values == expected for result in results.values())
    assert isinstance(results["pandas"].column, pandas.Series)
    assert list(results["pandas"].column.index) == ["x", "y", "z"]
    assert isinstance(results["lazy"].column, polars.Series)
    assert isinstance(results["arrow"].column, pyarrow.Array)


def test_a_record_has_all_columns_and_a_column_alone_is_a_table(client):
    assert len(client.relquery(tables()["polars"], "{*}", max_tokens=2, order="fields")) == 3
    assert len(client.relquery(tables()["pandas"]["review"], "{review}", max_tokens=2)) == 3
    assert len(client.relquery(pyarrow.array(["a", "b"]), "{text}", max_tokens=2)) == 2


def test_a_result_can_be_a_new_column_as_it_is(client):
    frame = tables()["pandas"]
    frame["label"] = client.classify(frame["review"].fillna("none"), LABELS)
    assert set(frame["label"]) <= set(LABELS)


def test_integers_stay_integers_where_a_row_failed(client):
    column = client.rate(tables()["pandas"]["review"]).column
    assert str(column.dtype) == "Int64" and column.isna().tolist() == [False, False, True]


def test_the_accessor_of_pandas_is_the_client_s_and_warns_of_rows(client):
    frame = tables()["pandas"]
    with pytest.warns(relserve.RowErrorsWarning, match="1 of 3 rows failed; row 2"):
        labels = frame["review"].ai.classify(LABELS)
    assert set(labels[:2]) <= set(LABELS) and labels.isna().tolist() == [False, False, True]
    with pytest.raises(relserve.RowError):
        frame["review"].ai.classify(LABELS, errors="raise")
    answers = frame.ai.relquery("{review}", max_tokens=2)
    assert list(answers.index) == ["x", "y", "z"]
    assert len(frame["review"].ai.relquery("{review}", max_tokens=2)) == 3
    with pytest.raises(AttributeError, match="no cell function `nonsense`"):
        frame["review"].ai.nonsense()


def test_the_namespace_of_polars_works_in_lazy_expressions(client):
    frame = tables()["lazy"].filter(polars.col("review").is_not_null())
    found = frame.with_columns(
        label=polars.col("review").ai.classify(LABELS), stars=polars.col("review").ai.rate()
    ).collect()
    assert set(found["label"]) <= set(LABELS)
    assert found.schema["stars"] == polars.Int64 and found["stars"].null_count() == 0
    assert found["review"].ai.list(2).dtype == polars.List(polars.String)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(tables()["polars"].ai.relquery("{year}: {review}", max_tokens=2)) == 3
