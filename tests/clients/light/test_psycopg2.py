"""psycopg 2: the driver that Superset and dbt use. It writes parameters into the text by itself."""

import psycopg2
import psycopg2.extras
from shared import DATABASE, HOST, KEY, LABELS, PORT, ROWS, USER, Checks


class Psycopg2(Checks):
    def setUp(self):
        self.connection = psycopg2.connect(host=HOST, port=PORT, user=USER, dbname=DATABASE, password=KEY)
        self.addCleanup(self.connection.close)

    def rows(self, query, parameters=None):
        with self.connection.cursor() as cursor:
            cursor.execute(query, parameters)
            return cursor.fetchall()

    def test_the_version_is_read(self):
        self.assertEqual(self.connection.server_version // 10_000, 16)

    def test_parameters(self):
        query = "SELECT id FROM reviews WHERE review LIKE %s AND stars = ANY(%s) ORDER BY id"
        self.assertEqual(self.rows(query, ("%a%", [1, 5])), [(2,), (4,), (5,)])

    def test_rows_by_name(self):
        with self.connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor) as cursor:
            cursor.execute("SELECT id, stars FROM reviews WHERE id = 1")
            self.assertEqual(dict(cursor.fetchone()), {"id": 1, "stars": 5})

    def test_values_are_inserted_in_pages(self):
        with self.connection.cursor() as cursor:
            cursor.execute("CREATE TEMP TABLE numbers (n bigint, square bigint)")
            rows = [(n, n * n) for n in range(250)]
            psycopg2.extras.execute_values(cursor, "INSERT INTO numbers VALUES %s", rows, page_size=100)
            cursor.execute("SELECT count(*), sum(square) FROM numbers")
            self.assertEqual(cursor.fetchone(), (250, sum(square for _, square in rows)))

    def test_a_scroll_cursor(self):
        with self.connection.cursor(name="rows", scrollable=True) as cursor:
            cursor.execute("SELECT id FROM reviews ORDER BY id")
            self.assertEqual(cursor.fetchmany(4), [(1,), (2,), (3,), (4,)])
            cursor.scroll(-3)
            self.assertEqual(cursor.fetchone(), (2,))
            cursor.scroll(0, mode="absolute")
            self.assertEqual(len(cursor.fetchall()), ROWS)

    def test_copy_to_a_file(self):
        import io

        file = io.StringIO()
        with self.connection.cursor() as cursor:
            cursor.copy_expert("COPY (SELECT id, stars FROM reviews ORDER BY id LIMIT 2) TO STDOUT CSV", file)
        self.assertEqual(file.getvalue(), "1,5\n2,1\n")

    def test_an_ai_column(self):
        ((label,),) = self.rows("SELECT ai_sentiment(review) FROM reviews WHERE id = %s", (1,))
        self.assertIn(label, LABELS)
