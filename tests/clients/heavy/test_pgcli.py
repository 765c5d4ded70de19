"""pgcli: what it asks for completions, and its commands, without a terminal."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

from pgcli.pgexecute import PGExecute
from pgspecial.main import PGSpecial


class Pgcli(unittest.TestCase):
    def setUp(self):
        self.executor = PGExecute(
            database=os.environ["PGDATABASE"],
            user=os.environ["PGUSER"],
            password=os.environ["PGPASSWORD"],
            host=os.environ["PGHOST"],
            port=os.environ["PGPORT"],
        )
        self.addCleanup(lambda: self.executor.conn.close())

    def test_what_completions_are_made_of(self):
        self.assertIn("public", self.executor.schemata())
        self.assertIn(("public", "reviews"), list(self.executor.tables()))
        self.assertIn(("relserve", "queries"), list(self.executor.views()))
        columns = [column[:4] for column in self.executor.table_columns() if column[1] == "reviews"]
        self.assertEqual(columns[0], ("public", "reviews", "id", "bigint"))
        list(self.executor.view_columns())
        self.assertEqual(list(self.executor.foreignkeys()), [])
        self.assertIn(os.environ["PGDATABASE"], self.executor.databases())
        list(self.executor.functions())
        list(self.executor.datatypes())
        self.assertIn("public", self.executor.search_path())

    def test_commands_that_describe(self):
        special = PGSpecial()
        for command in [
            "\\l",
            "\\du",
            "\\dn",
            "\\dt",
            "\\dt+",
            "\\dv",
            "\\di",
            "\\ds",
            "\\df",
            "\\d",
            "\\d reviews",
            "\\dT",
            "\\dx",
            "\\db",
            "\\dp",
        ]:
            with self.subTest(command):
                for title, rows, headers, status, *_ in self.executor.run(command, pgspecial=special):
                    list(rows or [])
                    self.assertNotIn("ERROR", str(status))

    def test_the_program_runs_a_query(self):
        program = Path(sys.executable).with_name("pgcli")
        done = subprocess.run(
            [program, "--less-chatty", os.environ["PGDATABASE"]],
            input="\\du\nSELECT id, stars FROM reviews WHERE id = 1;\n",
            capture_output=True,
            text=True,
            env=os.environ | {"TERM": "dumb"},
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("SELECT 1", done.stdout)
