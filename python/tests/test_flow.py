"""Windows, retries and tickets against a server that is a function: nothing waits."""

import json

import httpx
import pytest

import relserve
from relserve import Retries, _flow
from relserve._flow import Call, Pause, Reply


def reply(status=200, body=None, **headers):
    return Reply(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def events(call, at_rows, **done):
    """What a stream says for these rows of a call."""
    for at in at_rows:
        call.on_event("row", {"index": at, "text": call.body["rows"][at][0].upper(), "finish_reason": "stop"})
    call.on_event("done", {"id": "rq-1", "model": "m", "usage": {"prompt_tokens": len(at_rows)}, **done})
    return reply()


def job_of(rows, window_rows=100, window_bytes=1 << 20, until=None, retries=None):
    job = _flow.Job(
        path="/v1/relqueries",
        body=lambda places: {"rows": [[rows[place]] for place in places]},
        row_bytes=[len(row) for row in rows],
        result=relserve.Result(len(rows)),
        retries=retries or Retries(),
        window_rows=window_rows,
        window_bytes=window_bytes,
        until=until,
        now=lambda: 0.0,
    )
    return job


def drive(flow, answer):
    """Runs a flow to its end; gives its value, its calls and its pauses."""
    calls, pauses, said = [], [], None
    while True:
        try:
            step = flow.throw(said) if isinstance(said, Exception) else flow.send(said)
        except StopIteration as end:
            return end.value, calls, pauses
        if isinstance(step, Pause):
            pauses.append(step.seconds)
            said = None
        else:
            calls.append(step)
            try:
                said = answer(len(calls), step)
            except relserve.ConnectionLost as error:
                said = error


def all_rows(_, call):
    return events(call, range(len(call.body["rows"])))


def test_a_table_goes_in_windows_of_rows_and_bytes():
    job = job_of(["a", "b", "c", "d", "e"], window_rows=2)
    result, calls, _ = drive(_flow.run(job), all_rows)
    assert [len(call.body["rows"]) for call in calls] == [2, 2, 1]
    assert result.values == ["A", "B", "C", "D", "E"]
    assert result.usage.prompt_tokens == 5
    assert _flow.windows(job_of(["aaaa", "bb", "cc"], window_bytes=4), [0, 1, 2]) == [[0], [1, 2]]


def test_a_window_that_is_too_large_goes_in_halves_until_one_row_is_to_blame():
    too_large = {"error": {"message": "`rows` exceeds the limit of 1 rows", "param": None}}

    def answer(_, call):
        rows = call.body["rows"]
        return reply(413, too_large) if len(rows) > 1 or rows == [["c"]] else events(call, [0])

    result, _, _ = drive(_flow.run(job_of(["a", "b", "c"])), answer)
    assert result.values == ["A", "B", None]
    assert list(result.errors) == [2] and result.errors[2].limit == 1


@pytest.mark.parametrize(("status", "code"), [(429, "queue_full"), (503, None), (409, "idempotency_key_in_use")])
def test_a_server_that_is_full_or_busy_with_it_is_asked_again_when_it_says(status, code):
    def answer(count, call):
        refused = reply(status, {"error": {"message": "not now", "code": code}}, retry_after="3")
        return refused if count < 3 else all_rows(count, call)

    result, calls, pauses = drive(_flow.run(job_of(["a"])), answer)
    assert (result.values, len(calls), pauses) == (["A"], 3, [3.0, 3.0])
    assert len({call.headers["Idempotency-Key"] for call in calls}) == 1


@pytest.mark.parametrize(
    ("code", "retry_after", "kind"),
    [("budget_spent", "5", relserve.BudgetSpent), (None, "86400", relserve.Overloaded)],
)
def test_a_wait_that_is_of_no_use_is_not_waited(code, retry_after, kind):
    body = {"error": {"message": "spent", "code": code}}
    with pytest.raises(kind) as caught:
        drive(_flow.run(job_of(["a"])), lambda *_: reply(429, body, retry_after=retry_after))
    assert caught.value.retry_after == float(retry_after)


def test_tries_end():
    def answer(*_):
        raise relserve.ConnectionLost("away")

    seen = []
    with pytest.raises(relserve.ConnectionLost):
        drive(_flow.run(job_of(["a"], retries=Retries(tries_max=2))), lambda *call: seen.append(call) or answer())
    assert len(seen) == 3


def test_rows_that_came_before_a_connection_was_lost_are_not_asked_for_again():
    def answer(count, call):
        if count > 1:
            return all_rows(count, call)
        call.on_event("row", {"index": 1, "text": "B"})
        raise relserve.ConnectionLost("away")

    result, calls, _ = drive(_flow.run(job_of(["a", "b", "c"])), answer)
    assert result.values == ["A", "B", "C"]
    assert calls[1].body["rows"] == [["a"], ["c"]]
    assert calls[0].headers["Idempotency-Key"] != calls[1].headers["Idempotency-Key"]


def test_a_stream_without_its_last_event_is_a_lost_connection():
    def answer(count, call):
        return all_rows(count, call) if count > 1 else reply()

    result, calls, _ = drive(_flow.run(job_of(["a"])), answer)
    assert (result.values, len(calls)) == (["A"], 2)


def test_one_row_s_error_is_its_own():
    def answer(_, call):
        call.on_event("row", {"index": 1, "error": {"message": "invalid `rows[1]`: no", "param": "rows[1]"}})
        return events(call, [0, 2])

    result, _, _ = drive(_flow.run(job_of(["a", "b", "c"])), answer)
    assert result.values == ["A", None, "C"] and result.status == "completed"
    with pytest.raises(relserve.RowError) as caught:
        result.raise_for_errors()
    assert caught.value.index == 1


def test_a_bad_request_is_raised_and_not_tried_again():
    seen = []
    body = {"error": {"message": "invalid `top_p`: must be a number from 0 to 1", "param": "top_p"}}
    with pytest.raises(relserve.InvalidRequest) as caught:
        drive(_flow.run(job_of(["a"])), lambda *call: seen.append(call) or reply(400, body))
    assert (caught.value.field, caught.value.limit, len(seen)) == ("top_p", 1, 1)


def test_a_deadline_leaves_a_ticket_that_is_resumed_with_what_was_never_sent():
    job = job_of(["a", "b", "c"], window_rows=2, until=1.0)

    def cut(_, call):
        job.now = lambda: 2.0
        return events(call, [0], status="partial", ticket="rq-7")

    result, calls, _ = drive(_flow.run(job), cut)
    assert list(calls[0].body)[0] == "deadline_ms" and calls[0].body["deadline_ms"] == 1000
    assert (result.status, result.pending, len(calls)) == ("partial", [1, 2], 1)
    assert result.usage.prompt_tokens == 0

    def later(count, call):
        if call.method == "POST":
            return all_rows(count, call)
        rows = [{"index": 0, "text": "A"}, {"index": 1, "text": "B"} if count > 1 else {"index": 1, "pending": True}]
        status = "completed" if count > 1 else "running"
        return reply(200, {"status": status, "rows": rows, "usage": {"prompt_tokens": 2}, "model": "m"})

    job.until = None
    result, calls, pauses = drive(_flow.resume(job), later)
    assert [call.path for call in calls] == ["/v1/relqueries/rq-7"] * 2 + ["/v1/relqueries"]
    assert result.values == ["A", "B", "C"] and len(pauses) == 1
    assert result.usage.prompt_tokens == 3 and result.tickets == []


def test_rows_of_a_ticket_that_was_cancelled_fail():
    job = job_of(["a"])
    job.result.tickets.append(relserve.Ticket("rq-7", (0,)))
    told = {"status": "cancelled", "rows": [{"index": 0, "pending": True}]}
    result, _, _ = drive(_flow.resume(job), lambda *_: reply(200, told))
    assert "cancelled" in result.errors[0].message


def test_the_client_sends_its_key_its_model_and_all_rows_in_one_request():
    seen = []

    def handler(request):
        seen.append(request)
        lines = [f'event: row\ndata: {{"index": {at}, "text": "x"}}\n\n' for at in range(3)]
        done = 'event: done\ndata: {"id": "rq-1", "model": "m", "usage": {}}\n\n'
        return httpx.Response(200, content="".join(lines) + done)

    client = relserve.Client("http://here/v1/", "rs-key", model="m", transport=httpx.MockTransport(handler))
    told = []
    result = client.relquery(
        ["a", "b", "c"], "{text}", choice=["x"], class_="bulk", progress=lambda *rows: told.append(rows)
    )
    assert result.values == ["x"] * 3 and told == [(1, 3), (2, 3), (3, 3)]
    (request,) = seen
    assert (str(request.url), request.headers["authorization"]) == ("http://here/v1/relqueries", "Bearer rs-key")
    body = json.loads(request.content)
    assert body["rows"] == [["a"], ["b"], ["c"]] and body["model"] == "m" and body["class"] == "bulk"
    assert body["constraint"] == {"choice": ["x"]}


def test_an_empty_table_asks_nobody():
    client = relserve.Client("http://here", transport=httpx.MockTransport(lambda request: pytest.fail("asked")))
    assert client.relquery([], "{text}").values == []


def test_a_call_says_whether_it_is_whole_by_itself():
    assert Call("GET", "/v1/models").is_whole()
