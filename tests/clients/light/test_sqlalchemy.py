"""SQLAlchemy over psycopg 3 and 2: connecting, reflection, selects."""

import sqlalchemy
from shared import DATABASE, HOST, KEY, LABELS, PORT, ROWS, USER, Checks


class Psycopg3(Checks):
    driver = "postgresql+psycopg"

    def setUp(self):
        url = sqlalchemy.URL.create(self.driver, USER, KEY, HOST, PORT, DATABASE)
        self.engine = sqlalchemy.create_engine(url)
        self.addCleanup(self.engine.dispose)
        self.inspector = sqlalchemy.inspect(self.engine)
        with self.engine.begin() as connection:
            connection.execute(
                sqlalchemy.text("CREATE OR REPLACE VIEW liked AS SELECT * FROM reviews WHERE stars > 3")
            )

    def test_schemas_tables_and_views(self):
        self.assertIn("public", self.inspector.get_schema_names())
        self.assertIn("reviews", self.inspector.get_table_names())
        self.assertIn("liked", self.inspector.get_view_names())
        self.assertNotIn("liked", self.inspector.get_table_names())
        self.assertTrue(self.inspector.has_table("reviews"))
        self.assertFalse(self.inspector.has_table("ghosts"))
        self.assertEqual(self.inspector.default_schema_name, "public")

    def test_columns(self):
        for table in ["reviews", "liked"]:
            kinds = {column["name"]: column["type"] for column in self.inspector.get_columns(table)}
            self.assertIsInstance(kinds["id"], sqlalchemy.BigInteger)
            self.assertIsInstance(kinds["review"], sqlalchemy.Text)

    def test_keys_indexes_and_comments_are_none(self):
        self.assertEqual(self.inspector.get_pk_constraint("reviews")["constrained_columns"], [])
        self.assertEqual(self.inspector.get_foreign_keys("reviews"), [])
        self.assertEqual(self.inspector.get_indexes("reviews"), [])
        self.assertEqual(self.inspector.get_unique_constraints("reviews"), [])
        self.assertEqual(self.inspector.get_check_constraints("reviews"), [])
        self.assertEqual(self.inspector.get_table_comment("reviews"), {"text": None})

    def test_a_reflected_database(self):
        metadata = sqlalchemy.MetaData()
        metadata.reflect(self.engine, views=True)
        self.assertLessEqual({"reviews", "liked"}, set(metadata.tables))

    def test_a_select_with_an_ai_column(self):
        reviews = sqlalchemy.Table("reviews", sqlalchemy.MetaData(), autoload_with=self.engine)
        label = sqlalchemy.func.ai_sentiment(reviews.c.review)
        query = sqlalchemy.select(reviews.c.id, label).where(reviews.c.id.in_([1])).limit(5)
        with self.engine.connect() as connection:
            ((number, answer),) = connection.execute(query).all()
        self.assertEqual(number, 1)
        self.assertIn(answer, LABELS)

    def test_rows_are_streamed(self):
        with self.engine.connect().execution_options(stream_results=True) as connection:
            self.assertEqual(len(connection.execute(sqlalchemy.text("SELECT id FROM reviews")).all()), ROWS)

    def test_a_table_is_made_filled_and_dropped(self):
        table = sqlalchemy.Table(
            f"made_by_{self.driver.partition('+')[2]}",
            sqlalchemy.MetaData(),
            sqlalchemy.Column("n", sqlalchemy.BigInteger),
            sqlalchemy.Column("word", sqlalchemy.Text),
        )
        table.create(self.engine)
        with self.engine.begin() as connection:
            connection.execute(sqlalchemy.insert(table), [{"n": 1, "word": "a"}, {"n": 2, "word": None}])
            rows = connection.execute(sqlalchemy.select(table).order_by(table.c.n)).all()
        self.assertEqual([tuple(row) for row in rows], [(1, "a"), (2, None)])
        table.drop(self.engine)
        self.assertFalse(sqlalchemy.inspect(self.engine).has_table(table.name))


class Psycopg2(Psycopg3):
    driver = "postgresql+psycopg2"
