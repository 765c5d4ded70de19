"""Daft's columns."""

import daft
from relserve.integrations.daft import classify, relquery

FRAME = daft.from_pydict({"review": ["A fine film.", "Two lost hours.", "It is fine."], "year": [1994, 2003, 2020]})
LABELS = ["praise", "complaint"]


def test_a_template_over_columns_is_a_column():
    answers = FRAME.select(relquery("{year}: {review}", ["review", "year"], choice=["yes", "no"]).alias("answer"))
    found = answers.to_pydict()["answer"]
    assert len(found) == 3 and set(found) <= {"yes", "no"}


def test_a_row_that_fails_is_null_and_the_others_are_not():
    frame = daft.from_pydict({"text": ["word " * 5000, "fine"]})
    found = frame.select(relquery("{text}", ["text"], max_tokens=2).alias("answer")).to_pydict()["answer"]
    assert found[0] is None and found[1] is not None


def test_a_column_is_classified():
    found = FRAME.select(classify(daft.col("review"), LABELS).alias("label")).to_pydict()["label"]
    assert len(found) == 3 and set(found) <= set(LABELS)
