"""DuckDB's postgres extension, which comes as a package of its own: the server's tables within DuckDB."""

import os
import sysconfig
import unittest

import duckdb

# Where the package `duckdb-ext-postgres` puts the extension, which DuckDB would else fetch.
EXTENSIONS = os.path.join(sysconfig.get_path("purelib"), "duckdb_ext", "extensions")
SERVER = "host={PGHOST} port={PGPORT} dbname={PGDATABASE} user={PGUSER} password={PGPASSWORD}".format(
    **os.environ
)


class DuckDb(unittest.TestCase):
    def setUp(self):
        self.connection = duckdb.connect(config={"extension_directory": EXTENSIONS})
        self.addCleanup(self.connection.close)
        self.connection.execute("LOAD postgres")
        self.connection.execute(f"ATTACH '{SERVER}' AS relserve (TYPE postgres, READ_ONLY)")

    def rows(self, query):
        return self.connection.execute(query).fetchall()

    def test_tables_are_listed(self):
        rows = self.rows(
            "SELECT table_name FROM duckdb_tables() WHERE database_name = 'relserve' AND schema_name = 'public'"
        )
        self.assertIn(("reviews",), rows)

    def test_a_table_is_read_and_joined(self):
        self.assertEqual(
            self.rows("SELECT stars, count(*) FROM relserve.public.reviews GROUP BY 1 ORDER BY 1"),
            [(1, 2), (3, 1), (5, 2)],
        )
        self.connection.execute(
            "CREATE TABLE words AS SELECT * FROM (VALUES (1, 'bad'), (5, 'good')) AS t(stars, word)"
        )
        rows = self.rows(
            "SELECT r.id, w.word FROM relserve.public.reviews r JOIN words w USING (stars) ORDER BY r.id"
        )
        self.assertEqual(rows, [(1, "good"), (2, "bad"), (4, "bad"), (5, "good")])

    def test_a_condition_goes_to_the_server(self):
        self.assertEqual(
            self.rows("SELECT review FROM relserve.public.reviews WHERE id = 2"),
            [("The battery died in a day",)],
        )

    def test_a_query_of_the_server_has_ai(self):
        rows = self.rows(
            "SELECT * FROM postgres_query('relserve', 'SELECT id, ai_sentiment(review) AS label FROM reviews')"
        )
        self.assertEqual(len([label for _, label in rows if label]), 5)
