"""psycopg 3: parameters, server cursors, pipelines, COPY, transactions, arrays, cancellation."""

import datetime
import threading

import psycopg
from psycopg.types import TypeInfo
from shared import DATABASE, HOST, KEY, LABELS, PORT, ROWS, USER, Checks


def connect(**options):
    return psycopg.connect(host=HOST, port=PORT, user=USER, dbname=DATABASE, password=KEY, **options)


class Psycopg(Checks):
    def setUp(self):
        self.connection = connect()
        self.addCleanup(self.connection.close)

    def rows(self, query, *parameters):
        return self.connection.execute(query, parameters or None).fetchall()

    def test_parameters_and_casts(self):
        self.assertEqual(self.rows("SELECT id FROM reviews WHERE id = %s", 1), [(1,)])
        day = datetime.date(2024, 1, 2)
        self.assertEqual(self.rows("SELECT %s::date AS a, %s::int8 AS b", day, 3), [(day, 3)])

    def test_arrays_go_both_ways(self):
        found = self.rows("SELECT id FROM reviews WHERE id = ANY(%s) ORDER BY id", [1, 3, 99])
        self.assertEqual(found, [(1,), (3,)])
        self.assertEqual(self.rows("SELECT %s::text[]", ["a", "b,c", None]), [(["a", "b,c", None],)])
        self.assertEqual(self.rows("SELECT '{1,2}'::int[]"), [([1, 2],)])

    def test_equal_names_of_columns(self):
        cursor = self.connection.execute("SELECT NULL, NULL, id, id FROM reviews WHERE id = 1")
        self.assertEqual([column.name for column in cursor.description], ["?column?", "?column?", "id", "id"])
        self.assertEqual(cursor.fetchall(), [(None, None, 1, 1)])

    def test_notices_of_changes(self):
        notices = []
        self.connection.add_notice_handler(lambda notice: notices.append(notice.message_primary))
        self.connection.execute("SET relserve.cached_only = true")
        self.connection.execute(
            "CREATE TEMP TABLE unknown AS SELECT ai_if(review, 'was this ever asked?') AS y FROM reviews"
        )
        self.assertEqual(len(notices), 1)
        self.assertIn("5 of the AI answers are not computed", notices[0])

    def test_schemas_are_kept_or_refused(self):
        with self.assertRaisesRegex(psycopg.Error, "JSON"):
            self.rows("SELECT ai_complete('hello', schema => 'nope')")
        self.connection.rollback()
        # Cut at its limit of tokens, an answer is no document.
        long = '{"type": "array", "items": {"type": "string"}, "minItems": 9}'
        self.assertEqual(self.rows(f"SELECT ai_complete('hello', schema => '{long}', max_tokens => 4)"), [(None,)])
        self.assertIn("schema", self.rows("SELECT reason FROM relserve.errors")[-1][0])

    def test_now_has_a_time_zone(self):
        self.connection.execute("SET TIME ZONE 'Europe/Berlin'")
        now, kind = self.rows("SELECT now(), pg_typeof(now())")[0]
        self.assertIsNotNone(now.tzinfo)
        self.assertEqual((str(now.tzinfo), kind), ("Europe/Berlin", "timestamp with time zone"))

    def test_a_server_cursor_streams(self):
        with self.connection.cursor(name="rows") as cursor:
            cursor.itersize = 2
            cursor.execute("SELECT id FROM reviews")
            self.assertEqual([column.name for column in cursor.description], ["id"])
            self.assertEqual(len(list(cursor)), ROWS)

    def test_a_scroll_cursor_goes_back(self):
        with self.connection.cursor(name="rows", scrollable=True) as cursor:
            cursor.execute("SELECT id FROM reviews ORDER BY id")
            self.assertEqual(cursor.fetchmany(3), [(1,), (2,), (3,)])
            cursor.scroll(-2)
            self.assertEqual(cursor.fetchone(), (2,))
            cursor.scroll(0, mode="absolute")
            self.assertEqual(cursor.fetchone(), (1,))

    def test_prepared_statements(self):
        for _ in range(3):
            cursor = self.connection.execute("SELECT id FROM reviews WHERE id = %s", (1,), prepare=True)
            self.assertEqual(cursor.fetchone(), (1,))

    def test_a_pipeline(self):
        with self.connection.pipeline():
            one, two = self.connection.execute("SELECT 1"), self.connection.execute("SELECT 2")
            self.assertEqual((one.fetchone(), two.fetchone()), ((1,), (2,)))

    def test_binary_copy(self):
        query = "COPY (SELECT id FROM reviews WHERE id = 1) TO STDOUT (FORMAT binary)"
        with self.connection.cursor().copy(query) as copied:
            copied.set_types(["int8"])
            self.assertEqual(list(copied.rows()), [(1,)])

    def test_a_failed_savepoint_spares_its_transaction(self):
        with self.connection.transaction():
            with self.assertRaises(psycopg.errors.UndefinedColumn):
                with self.connection.transaction():
                    self.connection.execute("SELECT absent FROM reviews")
            self.assertEqual(self.rows("SELECT 1"), [(1,)])

    def test_a_deferrable_transaction(self):
        self.connection.deferrable = True
        self.assertEqual(self.rows("SELECT 1"), [(1,)])

    def test_types_are_found_by_name(self):
        self.assertEqual(TypeInfo.fetch(self.connection, "int8").oid, 20)
        self.assertIsNone(TypeInfo.fetch(self.connection, "hstore"))

    def test_a_temporary_table_is_the_sessions_own(self):
        self.connection.execute("CREATE TEMPORARY TABLE mine AS SELECT id FROM reviews WHERE id < 3")
        self.connection.execute("INSERT INTO mine VALUES (7)")
        self.assertEqual(self.rows("SELECT id FROM mine ORDER BY id"), [(1,), (2,), (7,)])
        self.connection.commit()
        with connect() as other, self.assertRaises(psycopg.errors.UndefinedTable):
            other.execute("SELECT * FROM mine")

    def test_tables_are_loaded_changed_and_renamed(self):
        for query, tag in [
            ("CREATE TABLE loaded (id integer, word text)", "CREATE TABLE"),
            ("INSERT INTO loaded (word, id) VALUES ('a', 1), ('b', 2), ('c', 3)", "INSERT 0 3"),
            ("DELETE FROM loaded WHERE id IN (SELECT id FROM reviews WHERE id = 2)", "DELETE 1"),
            ("ALTER TABLE loaded RENAME TO kept", "ALTER TABLE"),
        ]:
            self.assertEqual(self.connection.execute(query).statusmessage, tag)
        self.assertEqual(self.rows("SELECT id, word FROM kept ORDER BY id"), [(1, "a"), (3, "c")])
        self.assertEqual(
            self.connection.execute("TRUNCATE TABLE kept CASCADE").statusmessage, "TRUNCATE TABLE"
        )
        self.assertEqual(self.rows("SELECT count(*) FROM kept"), [(0,)])
        self.connection.execute("DROP TABLE IF EXISTS kept CASCADE")

    def test_another_thread_cancels(self):
        slow = "SELECT count(*) FROM generate_series(1, 100000000) a, generate_series(1, 100000000) b"

        def cancelled():
            # A cancel that comes before its statement does nothing, so it is sent until it is heard.
            while not done.wait(0.05):
                self.connection.cancel_safe()

        done = threading.Event()
        canceller = threading.Thread(target=cancelled)
        canceller.start()
        with self.assertRaises(psycopg.errors.QueryCanceled):
            self.rows(slow)
        done.set()
        canceller.join()

    def test_an_ai_column(self):
        ((label,),) = self.rows("SELECT ai_sentiment(review) FROM reviews WHERE id = %s", 1)
        self.assertIn(label, LABELS)
