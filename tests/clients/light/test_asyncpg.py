"""asyncpg: everything goes through prepared statements in binary."""

import datetime
import unittest

import asyncpg
from shared import DATABASE, HOST, KEY, LABELS, PORT, ROWS, USER


class Asyncpg(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self):
        self.connection = await asyncpg.connect(
            host=HOST, port=PORT, user=USER, database=DATABASE, password=KEY
        )
        self.addAsyncCleanup(self.connection.close)

    async def test_parameters_and_casts(self):
        rows = await self.connection.fetch("SELECT id FROM reviews WHERE id = $1", 1)
        self.assertEqual([row["id"] for row in rows], [1])
        day = datetime.date(2024, 1, 2)
        row = await self.connection.fetchrow("SELECT $1::int AS a, $2::date AS b, $3::text AS c", 1, day, "x")
        self.assertEqual(tuple(row), (1, day, "x"))
        self.assertEqual(len(await self.connection.fetch("SELECT id FROM reviews LIMIT $1", 1)), 1)

    async def test_arrays_are_parameters(self):
        rows = await self.connection.fetch("SELECT id FROM reviews WHERE id = ANY($1) ORDER BY id", [1, 2])
        self.assertEqual([row["id"] for row in rows], [1, 2])
        rows = await self.connection.fetch(
            "SELECT id FROM reviews WHERE id = ANY($1::bigint[]) ORDER BY id", [2, 5]
        )
        self.assertEqual([row["id"] for row in rows], [2, 5])
        row = await self.connection.fetchrow("SELECT $1::text[] AS a, $2::int[] AS b", ["x", None], [3])
        self.assertEqual(tuple(row), (["x", None], [3]))
        rows = await self.connection.fetch("SELECT unnest($1::text[]) AS word", ["a", "b"])
        self.assertEqual([row["word"] for row in rows], ["a", "b"])

    async def test_now_has_a_time_zone(self):
        self.assertIsNotNone((await self.connection.fetchval("SELECT now()")).tzinfo)

    async def test_a_prepared_statement(self):
        query = "SELECT id, ai_sentiment(review) AS label FROM reviews WHERE id = $1"
        statement = await self.connection.prepare(query)
        self.assertEqual([column.name for column in statement.get_attributes()], ["id", "label"])
        self.assertIn(await statement.fetchval(1, column=1), LABELS)

    async def test_a_cursor(self):
        async with self.connection.transaction(isolation="repeatable_read", readonly=True):
            cursor = self.connection.cursor("SELECT id FROM reviews", prefetch=2)
            self.assertEqual(len([row["id"] async for row in cursor]), ROWS)

    async def test_many_rows_are_inserted(self):
        await self.connection.execute("CREATE TEMP TABLE pairs (id bigint, word text)")
        await self.connection.executemany("INSERT INTO pairs VALUES ($1, $2)", [(1, "a"), (2, "b")])
        rows = await self.connection.fetch("SELECT * FROM pairs ORDER BY id")
        self.assertEqual([tuple(row) for row in rows], [(1, "a"), (2, "b")])

    async def test_a_timeout_cancels(self):
        slow = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b"
        with self.assertRaises(TimeoutError):
            await self.connection.fetchval(slow, timeout=0.2)
        self.assertEqual(await self.connection.fetchval("SELECT 1"), 1)

    async def test_a_pool_resets_its_connections(self):
        async with asyncpg.create_pool(
            host=HOST, port=PORT, user=USER, database=DATABASE, password=KEY, min_size=1, max_size=1
        ) as pool:
            for _ in range(2):
                async with pool.acquire() as connection:
                    self.assertEqual(await connection.fetchval("SELECT 1"), 1)
