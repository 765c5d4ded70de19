"""Columns of Spark: each batch of Arrow's (`spark.sql.execution.arrow.maxRecordsPerBatch`) is one request.

    from relserve.integrations.spark import classify, register, relquery

    frame.select(relquery("Is this a complaint? {review}", ["review"], choice=["yes", "no"]))
    frame.select(classify("review", ["praise", "complaint"]))

    register(spark)
    spark.sql("SELECT ai_classify(review, array('praise', 'complaint')) FROM reviews")

Workers need this package, and read `RELSERVE_URL` and `RELSERVE_KEY`, unless the address and the key are given. A row
that failed is null.
"""

from __future__ import annotations

import json
from typing import Any, Callable, List, Mapping, Optional, Sequence

import pandas
from pyspark.sql import Column, SparkSession
from pyspark.sql import functions as sql
from pyspark.sql.types import ArrayType, DataType, LongType, StringType

from ..client import Client
from ._sql import FUNCTIONS, NUMBER, TEXT, TEXTS

_TYPES: Mapping[str, DataType] = {TEXT: StringType(), TEXTS: ArrayType(StringType()), NUMBER: LongType()}
# Of a column of integers with gaps, pandas would make floats.
_DTYPES: Mapping[str, str] = {TEXT: "object", TEXTS: "object", NUMBER: "Int64"}


def relquery(
    template: str,
    columns: Sequence[str],
    *,
    base_url: Optional[str] = None,
    api_key: Optional[str] = None,
    **options: Any,
) -> Column:
    """A column of answers: the template over these columns."""
    names = list(columns)

    def answer(records: pandas.Series) -> pandas.Series:
        rows = [json.loads(record) for record in records]
        with Client(base_url, api_key, progress=False) as client:
            return pandas.Series(client.relquery(rows, template, **options).values, dtype="object")

    # As JSON an integer stays one beside gaps, and a gap is not left out.
    return _udf(answer, TEXT)(sql.to_json(sql.struct(*names), {"ignoreNullFields": "false"}))


def classify(
    text: Any, labels: Sequence[str], *, base_url: Optional[str] = None, api_key: Optional[str] = None
) -> Column:
    """The label that fits each text; the text is a column or its name."""
    given = list(labels)

    def label(texts: pandas.Series) -> pandas.Series:
        with Client(base_url, api_key, progress=False) as client:
            return pandas.Series(client.classify(texts.tolist(), given).values, dtype="object")

    return _udf(label, TEXT)(text)


def register(spark: SparkSession, *, base_url: Optional[str] = None, api_key: Optional[str] = None) -> None:
    """Gives a session's SQL the functions `ai_ask`, `ai_classify`, ..."""
    for name, (parameters, result) in FUNCTIONS.items():
        spark.udf.register(f"ai_{name}", _function(name, len(parameters), result, base_url, api_key))


def _function(name: str, parameters: int, result: str, base_url: Optional[str], api_key: Optional[str]) -> Any:
    def run(*columns: pandas.Series) -> pandas.Series:
        rows: List[Any] = list(zip(*([_plain(value) for value in column] for column in columns)))
        with Client(base_url, api_key, progress=False) as client:
            answers = client.cells([(name, *row) for row in rows]).values
        return pandas.Series(answers, dtype=_DTYPES[result])

    # Spark counts the parameters and reads their types.
    def of_one(one: pandas.Series) -> pandas.Series:
        return run(one)

    def of_two(one: pandas.Series, two: pandas.Series) -> pandas.Series:
        return run(one, two)

    return _udf(of_one if parameters == 1 else of_two, result)


def _udf(function: Callable[..., Any], result: str) -> Any:
    # Spark repeats what it takes for deterministic, as where a filter names the column: each time is a request.
    return sql.pandas_udf(function, _TYPES[result]).asNondeterministic()


def _plain(value: Any) -> Any:
    """An array as a list."""
    return value.tolist() if hasattr(value, "tolist") else value
