"""Daft's columns."""

import daft
import pydantic
import pytest
from daft.functions import classify_text, prompt
from relserve.integrations.daft import RelServeProvider, classify, relquery

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


class Mood(pydantic.BaseModel, extra="forbid"):
    is_positive: bool


@pytest.fixture
def provider(proxy):
    daft.attach_provider(RelServeProvider(base_url=proxy.url))
    yield "relserve"
    daft.detach_provider("relserve")


def answers(asked, frame=FRAME):
    return frame.select(asked.alias("answer")).to_pydict()["answer"]


def test_a_prompt_by_our_provider_is_one_relquery_and_not_chats(provider, proxy):
    frame = daft.from_pydict({"review": [f"Film {number}" for number in range(100)]})
    system = "Say the last word."
    found = answers(
        prompt(daft.col("review"), system_message=system, provider=provider, max_tokens=4, temperature=0), frame
    )
    assert len(found) == 100 and None not in found
    ((path, body),) = proxy.asked
    assert path == "/v1/relqueries" and body["rows"] == [[f"Film {number}"] for number in range(100)]
    assert (body["system"], body["max_tokens"], body["temperature"]) == (system, 4, 0)


def test_several_messages_are_one_text_and_a_gap_is_not_asked(provider, proxy):
    frame = daft.from_pydict({"a": ["x", None], "b": ["y", "z"]})
    found = answers(prompt([daft.col("a"), daft.col("b")], provider=provider, max_tokens=2), frame)
    assert found[0] is not None and found[1] is None
    ((_, body),) = proxy.asked
    assert body["rows"] == [["xy"]]


def test_a_form_is_a_struct(provider, proxy):
    found = answers(prompt(daft.col("review"), return_format=Mood, provider=provider, max_tokens=40))
    assert [set(row) for row in found] == [{"is_positive"}] * 3
    assert proxy.counts() == [("/v1/relqueries", 3)]


def test_a_row_s_error_is_raised_or_leaves_a_gap(provider):
    frame = daft.from_pydict({"text": ["word " * 5000, "fine"]})
    with pytest.raises(Exception, match="tokens"):
        answers(prompt(daft.col("text"), provider=provider, max_tokens=2), frame)
    found = answers(prompt(daft.col("text"), provider=provider, max_tokens=2, on_error="ignore"), frame)
    assert found[0] is None and found[1] is not None


def test_classify_text_is_one_request(provider, proxy):
    found = answers(classify_text(daft.col("review"), LABELS, provider=provider))
    assert len(found) == 3 and set(found) <= set(LABELS)
    assert proxy.counts() == [("/v1/cells", 3)]
