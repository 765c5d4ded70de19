"""Cell functions in DuckDB's SQL."""

import pytest

duckdb = pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")
from relserve.integrations.duckdb import register  # noqa: E402


@pytest.fixture
def connection(client):
    connection = duckdb.connect()
    connection.execute(
        "CREATE TABLE reviews AS SELECT * FROM (VALUES (1, 'A fine film'), (2, 'Two lost hours')) AS t(id, review)"
    )
    register(connection, client)
    return connection


def test_a_column_of_sql_is_classified(connection):
    rows = connection.execute("SELECT id, ai_classify(review, ['good', 'bad']) FROM reviews ORDER BY id").fetchall()
    assert [id for id, _ in rows] == [1, 2] and {label for _, label in rows} <= {"good", "bad"}


def test_ratings_are_numbers_and_lists_are_lists(connection):
    (row,) = connection.execute("SELECT avg(ai_rate(review)), any_value(ai_list(review, 2)) FROM reviews").fetchall()
    assert 1 <= row[0] <= 5 and isinstance(row[1], list)


def test_a_vector_is_one_request(connection, client, monkeypatch):
    sent = []
    cells = client.cells
    monkeypatch.setattr(client, "cells", lambda calls, **options: sent.append(len(calls)) or cells(calls, **options))
    connection.execute("SELECT ai_rate('Text ' || range) FROM range(100)").fetchall()
    assert sent == [100]
