"""The runnable of LangChain."""

import asyncio

import pytest

import relserve

pytest.importorskip("langchain_core")
from langchain_core.runnables import RunnableLambda  # noqa: E402
from relserve.integrations.langchain import RelQuery  # noqa: E402

INPUTS = [{"review": "It broke."}, {"review": "I love it."}]


def stage(client, **options):
    return RelQuery(template="Is this a complaint? {review}", options={"choice": ["yes", "no"], **options}, client=client)


def test_a_batch_is_one_relquery_in_a_chain_too(client, monkeypatch):
    sent = []
    relquery = client.relquery
    monkeypatch.setattr(client, "relquery", lambda table, *a, **k: sent.append(len(table)) or relquery(table, *a, **k))
    chain = stage(client) | RunnableLambda(str.upper)
    assert set(chain.batch(INPUTS)) <= {"YES", "NO"}
    assert sent == [2]


def test_one_input_and_awaited_ones(client):
    assert stage(client).invoke(INPUTS[0]) in ("yes", "no")
    assert set(asyncio.run(stage(client).abatch(INPUTS))) <= {"yes", "no"}


def test_one_input_s_error_is_raised_or_handed_back(client):
    texts = RelQuery(template="{text}", options={"max_tokens": 2}, client=client)
    with pytest.raises(relserve.RowError):
        texts.batch(["word " * 5000, "fine"])
    first, second = texts.batch(["word " * 5000, "fine"], return_exceptions=True)
    assert isinstance(first, relserve.RowError) and isinstance(second, str)
