"""Python's clients of Postgres against RelServe's SQL port: psycopg, asyncpg and SQLAlchemy (over psycopg).

usage: sql_clients.py --port PORT --key KEY [--table TABLE]
It needs `psycopg[binary]`, `asyncpg` and `sqlalchemy`, and a server that has a table with the columns id (a
whole number, one row of which is 1) and review (a text). It exits with 1 if a check fails.
"""

import argparse
import asyncio
import datetime
import sys
import traceback

import asyncpg
import psycopg
import sqlalchemy
from psycopg.types import TypeInfo

LABELS = {"positive", "negative", "neutral"}


def psycopg_checks(options):
    """psycopg 3: parameters, cursors of the server, pipelines, COPY, transactions."""
    connection = psycopg.connect(
        host=options.host, port=options.port, user="default", dbname="default", password=options.key
    )
    table = options.table

    def parameters():
        rows = connection.execute(f"SELECT id FROM {table} WHERE id = %s", (1,)).fetchall()
        assert rows == [(1,)], rows

    def casts():
        day = datetime.date(2024, 1, 2)
        rows = connection.execute("SELECT %s::date AS a, %s::int8 AS b", (day, 3)).fetchall()
        assert rows == [(day, 3)], rows

    def server_cursor():
        count = connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0]
        with connection.cursor(name="rows") as cursor:
            cursor.itersize = 7
            cursor.execute(f"SELECT id FROM {table}")
            assert [column.name for column in cursor.description] == ["id"], cursor.description
            assert len(list(cursor)) == count

    def prepared():
        for _ in range(3):
            row = connection.execute(f"SELECT id FROM {table} WHERE id = %s", (1,), prepare=True).fetchone()
            assert row == (1,), row

    def pipeline():
        with connection.pipeline():
            one, two = connection.execute("SELECT 1"), connection.execute("SELECT 2")
            assert (one.fetchone(), two.fetchone()) == ((1,), (2,))

    def copy():
        query = f"COPY (SELECT id FROM {table} WHERE id = 1) TO STDOUT (FORMAT binary)"
        with connection.cursor().copy(query) as copied:
            copied.set_types(["int8"])
            assert list(copied.rows()) == [(1,)]

    def failed_savepoint():
        with connection.transaction():
            try:
                with connection.transaction():
                    connection.execute(f"SELECT absent FROM {table}")
            except psycopg.errors.UndefinedColumn:
                pass
            assert connection.execute("SELECT 1").fetchone() == (1,)

    def deferrable():
        connection.rollback()
        connection.deferrable = True
        try:
            assert connection.execute("SELECT 1").fetchone() == (1,)
        finally:
            connection.rollback()
            connection.deferrable = None

    def types():
        assert TypeInfo.fetch(connection, "int8").oid == 20
        assert TypeInfo.fetch(connection, "hstore") is None

    def ai():
        query = f"SELECT ai_sentiment(review) FROM {table} WHERE id = %s"
        (label,) = connection.execute(query, (1,)).fetchone()
        assert label in LABELS, label

    checks = [parameters, casts, server_cursor, prepared, pipeline, copy]
    checks += [failed_savepoint, deferrable, types, ai]
    for check in checks:
        yield f"psycopg {check.__name__}", check
        connection.rollback()
    connection.close()


def asyncpg_checks(options):
    """asyncpg: everything goes through prepared statements in binary."""

    async def within(check):
        connection = await asyncpg.connect(
            host=options.host, port=options.port, user="default", database="default", password=options.key
        )
        try:
            await check(connection)
        finally:
            await connection.close()

    async def fetch(connection):
        rows = await connection.fetch(f"SELECT id FROM {options.table} WHERE id = $1", 1)
        assert [row["id"] for row in rows] == [1], rows

    async def casts(connection):
        day = datetime.date(2024, 1, 2)
        row = await connection.fetchrow("SELECT $1::int AS a, $2::date AS b, $3::text AS c", 1, day, "x")
        assert tuple(row) == (1, day, "x"), row

    async def limit(connection):
        rows = await connection.fetch(f"SELECT id FROM {options.table} LIMIT $1", 1)
        assert len(rows) == 1, rows

    async def prepared(connection):
        query = f"SELECT id, ai_sentiment(review) AS label FROM {options.table} WHERE id = $1"
        statement = await connection.prepare(query)
        assert [column.name for column in statement.get_attributes()] == ["id", "label"]
        assert (await statement.fetchval(1, column=1)) in LABELS

    async def cursor(connection):
        async with connection.transaction(isolation="repeatable_read", readonly=True):
            cursor = connection.cursor(f"SELECT id FROM {options.table}", prefetch=7)
            seen = [row["id"] async for row in cursor]
        assert len(seen) == await connection.fetchval(f"SELECT count(*) FROM {options.table}")

    async def reset(connection):
        await connection.reset()
        assert await connection.fetchval("SELECT 1") == 1

    for check in [fetch, casts, limit, prepared, cursor, reset]:
        yield f"asyncpg {check.__name__}", lambda check=check: asyncio.run(within(check))


def sqlalchemy_checks(options):
    """SQLAlchemy: connecting, reflection, selects."""
    url = sqlalchemy.URL.create(
        "postgresql+psycopg", "default", options.key, options.host, options.port, "default"
    )
    engine = sqlalchemy.create_engine(url)
    table = options.table

    def inspector():
        return sqlalchemy.inspect(engine)

    def schemas():
        assert "public" in inspector().get_schema_names()

    def tables():
        assert table in inspector().get_table_names()

    def columns():
        kinds = {column["name"]: column["type"] for column in inspector().get_columns(table)}
        assert isinstance(kinds["id"], sqlalchemy.BigInteger), kinds
        assert isinstance(kinds["review"], sqlalchemy.Text), kinds

    def keys():
        assert inspector().get_pk_constraint(table)["constrained_columns"] == []
        assert inspector().get_foreign_keys(table) == []
        assert inspector().get_indexes(table) == []

    def select():
        reflected = sqlalchemy.Table(table, sqlalchemy.MetaData(), autoload_with=engine)
        label = sqlalchemy.func.ai_sentiment(reflected.c.review)
        query = sqlalchemy.select(reflected.c.id, label).where(reflected.c.id.in_([1])).limit(5)
        with engine.connect() as connection:
            rows = connection.execute(query).all()
        assert len(rows) == 1 and rows[0][0] == 1 and rows[0][1] in LABELS, rows

    def streamed():
        with engine.connect().execution_options(stream_results=True) as connection:
            rows = connection.execute(sqlalchemy.text(f"SELECT id FROM {table}")).all()
        assert rows

    for check in [schemas, tables, columns, keys, select, streamed]:
        yield f"SQLAlchemy {check.__name__}", check
    engine.dispose()


def run(checks, options):
    """Runs a client's checks; gives how many failed."""
    failures = 0
    try:
        for name, check in checks(options):
            try:
                check()
                print(f"ok    {name}")
            except Exception as error:  # Every kind of failure is to be told, and the next check tried.
                failures += 1
                print(f"FAIL  {name}: {type(error).__name__}: {error}")
                traceback.print_exc()
    except Exception as error:
        failures += 1
        print(f"FAIL  {checks.__name__}: {type(error).__name__}: {error}")
    return failures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True, help="the port of the Postgres protocol")
    parser.add_argument("--key", required=True, help="an API key")
    parser.add_argument("--table", default="reviews", help="a table with the columns id and review")
    options = parser.parse_args()
    failures = sum(run(checks, options) for checks in [psycopg_checks, asyncpg_checks, sqlalchemy_checks])
    print(f"{failures} failed" if failures else "all passed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
