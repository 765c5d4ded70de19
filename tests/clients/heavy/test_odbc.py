"""ODBC: Debian's driver by isql and pyodbc."""

import os
import subprocess
import unittest

import pyodbc

LABELS = {"positive", "negative", "neutral", "mixed"}
DRIVER = "Driver={PostgreSQL Unicode};" + "".join(
    f"{name}={os.environ[variable]};"
    for name, variable in [
        ("Server", "PGHOST"),
        ("Port", "PGPORT"),
        ("Database", "PGDATABASE"),
        ("Uid", "PGUSER"),
        ("Pwd", "PGPASSWORD"),
    ]
)


class Odbc(unittest.TestCase):
    def setUp(self):
        self.connection = pyodbc.connect(DRIVER)
        self.addCleanup(self.connection.close)
        self.cursor = self.connection.cursor()

    def test_isql_reads_a_query(self):
        done = subprocess.run(
            ["isql", "-k", DRIVER, "-b", "-v", "-d,"],
            input="SELECT id, stars FROM reviews ORDER BY id;\n",
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("1,5", done.stdout)

    def test_the_list_of_tables(self):
        tables = {(row.table_schem, row.table_name): row.table_type for row in self.cursor.tables()}
        self.assertEqual(tables["public", "reviews"], "TABLE")
        self.assertEqual(self.connection.getinfo(pyodbc.SQL_DATABASE_NAME), os.environ["PGDATABASE"])

    def test_columns(self):
        rows = self.cursor.columns(table="reviews").fetchall()
        self.assertEqual(
            [(row.column_name, row.type_name) for row in rows],
            [("id", "int8"), ("review", "text"), ("stars", "int8")],
        )

    def test_keys_and_indexes(self):
        self.assertEqual(self.cursor.primaryKeys("reviews").fetchall(), [])
        self.assertEqual(self.cursor.foreignKeys(table="reviews").fetchall(), [])
        self.assertEqual([row for row in self.cursor.statistics("reviews").fetchall() if row.index_name], [])
        self.assertTrue(self.cursor.getTypeInfo().fetchall())
        self.cursor.procedures().fetchall()

    def test_parameters(self):
        self.cursor.execute("SELECT id FROM reviews WHERE id = ? AND review LIKE ?", 1, "%loved%")
        self.assertEqual([row.id for row in self.cursor.fetchall()], [1])

    def test_transactions(self):
        self.cursor.execute("SELECT 1")
        self.connection.commit()
        self.connection.rollback()

    def test_an_ai_column(self):
        self.cursor.execute("SELECT ai_sentiment(review) FROM reviews WHERE id = ?", 1)
        self.assertIn(self.cursor.fetchone()[0], LABELS)
