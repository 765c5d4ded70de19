"""The stage of Ray Data on batches as Ray hands them out; `heavy/test_ray.py` runs it under Ray."""

import pytest

import relserve
from relserve.integrations.ray import RelQueryStage

pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")
numpy = pytest.importorskip("numpy")
DATA = {"review": ["A fine film.", "Two lost hours."]}


def test_batches_of_all_formats_get_a_column_of_answers(client):
    stage = RelQueryStage("Is it good? {review}", choice=["yes", "no"])
    batches = [pandas.DataFrame(DATA), pyarrow.table(DATA), {"review": numpy.array(DATA["review"], dtype=object)}]
    for batch in batches:
        found = stage(batch)
        answers = found["answer"].to_pylist() if isinstance(batch, pyarrow.Table) else list(found["answer"])
        assert len(answers) == 2 and set(answers) <= {"yes", "no"}
        assert "answer" not in (batch.column_names if isinstance(batch, pyarrow.Table) else batch)


def test_errors_are_raised_or_go_to_a_column_of_their_own(client):
    batch = pyarrow.table({"text": ["word " * 5000, "fine"]})
    with pytest.raises(relserve.RowError):
        RelQueryStage("{text}", max_tokens=2)(batch)
    found = RelQueryStage("{text}", errors_to="error", max_tokens=2)(batch)
    assert [error is None for error in found.column("error").to_pylist()] == [False, True]
