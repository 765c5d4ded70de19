"""Columns and SQL of Spark."""

import json
import os
import sys

import pytest
from pyspark.sql import SparkSession
from relserve.integrations.spark import classify, register, relquery

REVIEWS = [("A fine film.", 1994), ("Two lost hours.", None), ("It is fine.", 2020)]
LABELS = ["praise", "complaint"]


@pytest.fixture(scope="module")
def spark():
    # Else a worker is the first `python3` of the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
    yield session
    session.stop()


@pytest.fixture
def reviews(spark):
    return spark.createDataFrame(REVIEWS, "review string, year int").coalesce(1)


def values(frame):
    return [row[0] for row in frame.collect()]


def test_a_template_over_columns_is_a_column(reviews):
    found = values(reviews.select(relquery("{year}: {review}", ["review", "year"], choice=["yes", "no"])))
    assert len(found) == 3 and set(found) <= {"yes", "no"}


def test_each_batch_is_one_relquery_also_where_a_filter_names_the_column(spark, proxy):
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "20")
    frame = spark.range(50).coalesce(1).selectExpr("concat('Film ', id) AS film")
    answer = relquery("Is it good? {film}", ["film"], choice=["yes", "no"], base_url=proxy.url)
    found = values(frame.select(answer.alias("answer")).where("answer IN ('yes', 'no')"))
    assert len(found) == 50
    assert proxy.counts() == [("/v1/relqueries", 20), ("/v1/relqueries", 20), ("/v1/relqueries", 10)]
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def test_numbers_and_gaps_are_sent_as_they_are(reviews, proxy):
    names = ["review", "year", "tags"]
    frame = reviews.selectExpr("review", "year", "array(year, 1) AS tags")
    values(frame.select(relquery("{*}", names, max_tokens=1, base_url=proxy.url)))
    ((_, body),) = proxy.asked
    assert body["columns"] == names
    assert body["rows"] == [[review, year, json.dumps([year, 1])] for review, year in REVIEWS]


def test_a_row_that_fails_is_null_and_the_others_are_not(spark):
    frame = spark.createDataFrame([("word " * 5000,), ("fine",)], "text string").coalesce(1)
    found = values(frame.select(relquery("{text}", ["text"], max_tokens=2)))
    assert found[0] is None and found[1] is not None


def test_a_column_is_classified(reviews):
    found = values(reviews.select(classify("review", LABELS)))
    assert len(found) == 3 and set(found) <= set(LABELS)


def test_sql_has_the_cell_functions(spark, reviews, proxy):
    register(spark, base_url=proxy.url)
    reviews.createOrReplaceTempView("reviews")
    labels = spark.sql("SELECT ai_classify(review, array('praise', 'complaint')) FROM reviews")
    assert set(values(labels)) <= set(LABELS)
    assert proxy.counts() == [("/v1/cells", 3)]
    (row,) = spark.sql("SELECT ai_rate(review) AS stars, ai_list(review, 2L) AS names FROM reviews LIMIT 1").collect()
    assert 1 <= row.stars <= 5 and isinstance(row.names, list)
