"""psql: what it asks to describe things, and Ctrl-C."""

import shutil
import signal
import subprocess
import unittest

from shared import USER, Checks


@unittest.skipUnless(shutil.which("psql"), "psql is not installed")
class Psql(Checks):
    def psql(self, *commands):
        arguments = ["psql", "-X", "-v", "ON_ERROR_STOP=1"]
        for command in commands:
            arguments += ["-c", command]
        done = subprocess.run(arguments, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("ERROR", done.stderr)
        # psql says there, too, that it found nothing.
        return done.stdout + done.stderr

    def test_everything_that_is_described(self):
        for command, expected in [
            ("\\d", "reviews"),
            ("\\dt", "reviews"),
            ("\\dt+", "reviews"),
            ("\\d reviews", 'Table "public.reviews"'),
            ("\\d+ reviews", "bigint"),
            ("\\dv", "relserve | queries"),
            ("\\dn", "public"),
            ("\\dn+", "public"),
            ("\\du", USER),
            ("\\l", "default"),
            ("\\df", "List of functions"),
            ("\\dT", "List of data types"),
            ("\\dp", "reviews"),
            ("\\dx", "List of installed extensions"),
            ("\\db", "pg_default"),
            ("\\di", "Did not find any"),
            ("\\ds", "Did not find any"),
            ("\\dm", "Did not find any"),
            ("\\conninfo", "connected to database"),
        ]:
            with self.subTest(command):
                self.assertIn(expected, self.psql(command))

    def test_the_database_has_the_name_that_was_connected_to(self):
        said = self.psql("SELECT current_database(), table_catalog FROM information_schema.tables LIMIT 1")
        self.assertIn("default          | default", said)
        self.assertIn("5", self.psql('SELECT count(*) FROM "default"."public"."reviews"'))

    def test_control_c_cancels(self):
        slow = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b"
        process = subprocess.Popen(
            ["psql", "-X", "-c", "SELECT 'begun'", "-c", slow],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for line in process.stdout:
            if "1 row" in line:
                break
        # psql may not have sent the second statement yet: it is asked until it hears.
        while process.poll() is None:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(0.2)
            except subprocess.TimeoutExpired:
                pass
        self.assertIn("canceling statement", process.stderr.read())
        process.stdout.close()
        process.stderr.close()
