"""dbt-postgres: a project with a seed, a view, a table with an AI column and incremental models, built twice."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import psycopg


class Dbt(unittest.TestCase):
    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(dir=os.environ["CLIENTS_WORK"])) / "dbt"
        shutil.copytree(Path(__file__).parent / "dbt", self.folder)

    def dbt(self, *arguments):
        program = Path(sys.executable).with_name("dbt")
        done = subprocess.run(
            [program, "--no-use-colors", *arguments, "--profiles-dir", "."],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env=os.environ | {"DO_NOT_TRACK": "1"},
        )
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def rows(self, query):
        with psycopg.connect() as connection:
            return connection.execute(query).fetchall()

    def test_a_project_is_built_and_built_again(self):
        self.dbt("debug")
        for build in range(2):
            said = self.dbt("build")
            self.assertIn("ERROR=0", said)
            self.assertEqual(self.rows("SELECT count(*) FROM labelled WHERE label IS NOT NULL"), [(5,)])
            self.assertEqual(self.rows("SELECT count(*), count(DISTINCT id) FROM seen"), [(5, 5)])
            self.assertEqual(self.rows("SELECT count(*) FROM appended"), [(3 + build,)])
            self.assertEqual(self.rows("SELECT count(*) FROM liked"), [(2,)])
            self.assertEqual(self.rows("SELECT count(*), count(opened) FROM shops"), [(3, 2)])
            tables = {
                name for (name,) in self.rows("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
            }
            self.assertEqual([name for name in tables if "__dbt" in name], [])
        self.dbt("build", "--full-refresh")
        self.assertEqual(self.rows("SELECT count(*) FROM appended"), [(3,)])
        self.dbt("docs", "generate")
