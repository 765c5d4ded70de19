"""Superset: its own engine specification for Postgres against the server, as its pages use it.

Superset itself is the package of that name; its web server is not started.
"""

import logging
import os
import unittest
from pathlib import Path

# Read when superset is imported.
os.environ["SUPERSET_CONFIG_PATH"] = str(Path(__file__).with_name("superset_config.py"))
os.environ["SUPERSET_HOME"] = os.environ["CLIENTS_WORK"]

from superset.app import create_app

URL = "postgresql+psycopg2://{PGUSER}:{PGPASSWORD}@{PGHOST}:{PGPORT}/{PGDATABASE}".format(**os.environ)


class Superset(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Its own tables are not there, so it cannot write down what it did.
        logging.disable(logging.CRITICAL)
        app = create_app()
        cls.context = app.app_context()
        cls.context.push()
        from superset.models.core import Database
        from superset.sql.parse import Table

        cls.table = staticmethod(Table)
        cls.database = Database(database_name="relserve")
        cls.database.set_sqlalchemy_uri(URL)

    @classmethod
    def tearDownClass(cls):
        cls.context.pop()

    def test_the_connection_is_tested(self):
        with self.database.get_sqla_engine() as engine:
            connection = engine.raw_connection()
            cursor = connection.cursor()
            self.database.db_engine_spec.execute(cursor, "SELECT 1", self.database)
            self.assertEqual(cursor.fetchall(), [(1,)])
            connection.close()

    def test_schemas_tables_and_views(self):
        self.assertIn("public", self.database.get_all_schema_names())
        tables = {name for name, *_ in self.database.get_all_table_names_in_schema(None, "public")}
        self.assertIn("reviews", tables)
        views = {name for name, *_ in self.database.get_all_view_names_in_schema(None, "relserve")}
        self.assertIn("queries", views)

    def test_columns_keys_and_indexes(self):
        table = self.table("reviews", "public")
        columns = [
            (column["column_name"], str(column["type"])) for column in self.database.get_columns(table)
        ]
        self.assertEqual(columns, [("id", "BIGINT"), ("review", "TEXT"), ("stars", "BIGINT")])
        self.assertFalse(self.database.get_pk_constraint(table).get("constrained_columns"))
        self.assertEqual(self.database.get_foreign_keys(table), [])
        self.assertEqual(self.database.get_indexes(table), [])
        self.assertIsNone(self.database.get_table_comment(table))

    def test_a_dataframe_of_sql_lab(self):
        frame = self.database.get_df(
            "SELECT stars, count(*) AS n FROM reviews GROUP BY stars ORDER BY stars", None, "public"
        )
        self.assertEqual(frame.to_dict("list"), {"stars": [1, 3, 5], "n": [2, 1, 2]})

    def test_an_estimate_of_cost(self):
        # Superset reads Postgres' numbers out of EXPLAIN; here it is told in rows, so it must not fail.
        frame = self.database.get_df("EXPLAIN SELECT ai_sentiment(review) FROM reviews", None, "public")
        self.assertTrue(len(frame))

    def test_a_time_grain(self):
        frame = self.database.get_df(
            "SELECT DATE_TRUNC('day', TIMESTAMP '2024-01-02 03:04:05') AS day", None, "public"
        )
        self.assertEqual(str(frame["day"][0])[:10], "2024-01-02")
