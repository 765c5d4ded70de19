"""The client against a real server. No test judges what the model says, only that each row has its own answer."""

import asyncio

import pytest

import relserve
from relserve.functions import KINDS

LABELS = ["praise", "complaint"]
REVIEWS = ["A wonderful film.", "Two lost hours.", "It is fine.", "The sound is bad."]


def test_the_methods_are_those_of_the_server_s_catalogue(client):
    found = {item["name"]: tuple(one["kind"] for one in item["parameters"]) for item in client.catalogue()}
    assert found == {name: tuple(kinds) for name, kinds in KINDS.items()}
    assert all(callable(getattr(client, name)) for name in found)


def test_a_column_is_one_relquery_with_an_answer_for_each_row(client):
    result = client.relquery(REVIEWS, "Is this positive? {text}", choice=["yes", "no"])
    assert len(result) == 4 and set(result) <= {"yes", "no"}
    assert len(result.ids) == 1 and result.ids[0].startswith("rq-")
    assert result.usage.prompt_tokens > 0 and result.model == client.models()[0]["id"]
    assert all(0 <= row.probability <= 1 for row in result.rows)


def test_windows_are_seamless(client):
    with relserve.Client(window_rows=3, progress=False) as small:
        texts = [f"Text {number}" for number in range(10)]
        split = small.relquery(texts, "{text}", max_tokens=3)
        whole = client.relquery(texts, "{text}", max_tokens=3)
    assert len(split.ids) == 4 and len(whole.ids) == 1
    assert split.values == whole.values


def test_one_row_s_failure_is_that_row_s_and_names_the_limit(client):
    result = client.relquery(["word " * 5000, "fine"], "{text}", max_tokens=2)
    assert list(result.errors) == [0]
    assert result.errors[0].code == "context_length_exceeded" and result.errors[0].limit
    assert result.values[0] is None and result.values[1] is not None


def test_a_bad_field_is_a_typed_error_with_its_name(client):
    with pytest.raises(relserve.InvalidRequest) as caught:
        client.relquery(["a"], "{text}", temperature=9)
    assert (caught.value.field, caught.value.limit) == ("temperature", 2)
    with pytest.raises(relserve.Unauthorized):
        relserve.Client(client.base_url, "rs-wrong").models()


def test_a_server_that_is_not_there_is_a_lost_connection():
    away = relserve.Client("http://127.0.0.1:9", retries=relserve.Retries(tries_max=0))
    with pytest.raises(relserve.ConnectionLost):
        away.models()


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        ("ask", [["Which city?"], ["They live in Oslo."]]),
        ("classify", [REVIEWS, LABELS]),
        ("extract", [REVIEWS, "the thing"]),
        ("tag", [REVIEWS, LABELS]),
        ("fill", [{"Oslo": "Norway", "Rome": "Italy"}, ["Paris"]]),
        ("list", [["fruit"], 2]),
        ("rate", [REVIEWS, "how positive it is", 1, 9]),
    ],
)
def test_a_cell_function_takes_a_column(client, function, arguments):
    result = getattr(client, function)(*arguments)
    texts = arguments[1] if function == "fill" else arguments[0]
    assert len(result) == len(texts)
    assert not result.pending and len(result.ids) == 1


def test_a_cell_that_makes_no_sense_fails_alone(client):
    result = client.cells([("rate", "A fine lens."), ("nonsense", "x"), {"function": "rate", "args": ["Bad."]}])
    assert list(result.errors) == [1] and result.errors[1].field == "calls[1]"
    assert isinstance(result.values[0], int) and result.rows[0].probability > 0


def test_a_deadline_leaves_rows_pending_and_resume_waits_for_them(client):
    texts = [f"A long story, number {number}" for number in range(200)]
    result = client.relquery(texts, "{text}", max_tokens=64, ignore_eos=True, cache=False, deadline=0.02)
    assert result.status == "partial" and result.pending
    tickets = list(result.tickets)
    client.resume(result)
    assert result.status == "completed" and not result.errors and None not in result.values
    # Another process needs the ticket's id alone.
    for ticket in tickets:
        again = client.ticket(ticket.id, len(ticket.rows))
        assert again.values == [result.values[row] for row in ticket.rows]


def test_the_async_client_has_the_same_answers(client):
    async def run():
        async with relserve.AsyncClient(progress=False) as twin:
            results = await asyncio.gather(twin.classify(REVIEWS, LABELS), twin.rate(REVIEWS))
            return [*results, await twin.relquery(REVIEWS, "{text}", max_tokens=2), await twin.models()]

    labels, ratings, texts, models = asyncio.run(run())
    assert labels.values == client.classify(REVIEWS, LABELS).values
    assert ratings.values == client.rate(REVIEWS).values
    assert texts.values == client.relquery(REVIEWS, "{text}", max_tokens=2).values
    assert models == client.models()
