"""The steps of a call over a table, without I/O: a generator yields what to send and is sent what came.

The two clients differ only in how they carry a step out, so that all of windows, retries and tickets is here once.
"""

from __future__ import annotations

import dataclasses
import time
import uuid
from typing import Any, Callable, Dict, Generator, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

from .errors import (
    BudgetSpent,
    ConnectionLost,
    DeadlinePassed,
    Overloaded,
    ServerError,
    TooLarge,
    Unavailable,
    row_error,
    server_error,
)
from .result import Result, Row, Ticket

T = TypeVar("T")

# A ticket is looked at soon, then less often.
_FIRST_LOOK_S = 0.1
_LAST_LOOK_S = 5.0


@dataclasses.dataclass(frozen=True)
class Call:
    """A request; of a stream each event goes to `on_event`, and `is_whole` says whether the last one came."""

    method: str
    path: str
    body: Optional[Mapping[str, Any]] = None
    headers: Mapping[str, str] = dataclasses.field(default_factory=dict)
    on_event: Optional[Callable[[str, Any], None]] = None
    is_whole: Callable[[], bool] = lambda: True


@dataclasses.dataclass(frozen=True)
class Pause:
    """Time to let pass."""

    seconds: float


@dataclasses.dataclass(frozen=True)
class Reply:
    """An answer; `body` is None where a stream has handed out its events."""

    status: int
    body: Any
    headers: Mapping[str, str]


Flow = Generator[Union[Call, Pause], Any, T]


@dataclasses.dataclass(frozen=True)
class Retries:
    """How long to go on where the server is full, or not there for now."""

    tries_max: int = 8
    # Most seconds to wait before one more try; a server that asks for more is believed and not asked again.
    wait_s_max: float = 60.0

    def wait(self, tries: int, error: Exception) -> Optional[float]:
        """Seconds until the next try; None where there is no use in one."""
        if tries >= self.tries_max or isinstance(error, BudgetSpent):
            return None
        told = error.retry_after if isinstance(error, ServerError) else None
        wait = told if told is not None else min(0.25 * 2**tries, self.wait_s_max)
        return wait if wait <= self.wait_s_max else None


def ask(make: Callable[[], Call], retries: Retries) -> Flow[Reply]:
    """Sends a call until it is answered. It is made anew for each try: a part may have been answered."""
    tries = 0
    while True:
        error: Exception
        try:
            call = make()
            reply: Reply = yield call
            if reply.status < 400 and not call.is_whole():
                raise ConnectionLost("the stream ended before its last event")
            if reply.status < 400:
                return reply
            error = server_error(reply.status, reply.body, _retry_after(reply.headers))
        except ConnectionLost as lost:
            error = lost
        if not isinstance(error, (ConnectionLost, Overloaded, Unavailable)):
            raise error
        wait = retries.wait(tries, error)
        if wait is None:
            raise error
        tries += 1
        yield Pause(wait)


def _retry_after(headers: Mapping[str, str]) -> Optional[float]:
    try:
        return float(headers.get("retry-after", ""))
    except ValueError:
        return None


@dataclasses.dataclass
class Job:
    """A call over a table: how rows become a body, and what came back so far."""

    path: str
    # The body for the rows at these places, without how it is to be sent.
    body: Callable[[Sequence[int]], Dict[str, Any]]
    # About how many bytes of JSON each row has.
    row_bytes: Sequence[int]
    result: Result
    retries: Retries
    window_rows: int
    window_bytes: int
    # When what is there is handed back, on the clock of `now`.
    until: Optional[float] = None
    on_progress: Callable[[int], object] = lambda rows: None
    now: Callable[[], float] = time.monotonic

    @property
    def left_ms(self) -> Optional[int]:
        """Time until the deadline."""
        return None if self.until is None else int((self.until - self.now()) * 1000)


def run(job: Job) -> Flow[Result]:
    """Runs what is pending, window by window; past the deadline what is left stays pending."""
    ticketed = {row for ticket in job.result.tickets for row in ticket.rows}
    todo = windows(job, [row for row in job.result.pending if row not in ticketed])
    while todo and (job.left_ms is None or job.left_ms > 0):
        window = todo.pop(0)
        try:
            yield from _run_window(job, window)
        except DeadlinePassed:
            break
        except TooLarge as error:
            if len(window) == 1:
                _fail(job, window[0], error)
            else:
                middle = len(window) // 2
                todo[:0] = [window[:middle], window[middle:]]
    return job.result


def windows(job: Job, rows: Sequence[int]) -> List[List[int]]:
    """Rows in groups that a request may have."""
    groups: List[List[int]] = []
    size = 0
    for row in rows:
        more = job.row_bytes[row]
        if not groups or len(groups[-1]) >= job.window_rows or size + more > job.window_bytes:
            groups.append([])
            size = 0
        groups[-1].append(row)
        size += more
    return groups


def _fail(job: Job, row: int, error: ServerError) -> None:
    told = {"message": error.message, "param": error.field, "type": error.kind, "code": error.code}
    job.result.rows[row] = Row(row, error=row_error(row, 0, told))
    job.on_progress(1)


def _run_window(job: Job, window: Sequence[int]) -> Flow[None]:
    sent: List[int] = []
    key = ""
    ended: List[Tuple[str, Any]] = []

    def on_event(name: str, data: Any) -> None:
        if name in ("row", "cell"):
            _take(job, sent, data)
        elif name in ("done", "error"):
            ended.append((name, data))

    def make() -> Call:
        nonlocal sent, key
        missing = [row for row in window if job.result.rows[row].pending]
        # The same rows again are the same run, should the server have it still; fewer rows are another one.
        if missing != sent:
            sent, key = missing, uuid.uuid4().hex
        # The server gives up a body that arrives late only where it has read the deadline before the rows.
        deadline = {} if job.left_ms is None else {"deadline_ms": max(job.left_ms, 1)}
        body = {**deadline, "stream": True, **job.body(sent)}
        headers = {"Idempotency-Key": key} if job.left_ms is None else {}
        ended.clear()
        return Call("POST", job.path, body, headers, on_event, lambda: bool(ended))

    yield from ask(make, job.retries)
    name, data = ended[-1]
    if name == "error":
        raise server_error(500, data)
    _end(job, sent, data)


def _end(job: Job, sent: Sequence[int], data: Mapping[str, Any]) -> None:
    result = job.result
    result.model = data.get("model") or result.model
    result.ids.append(data["id"])
    if data.get("ticket"):
        # Its usage is counted when it is over.
        result.tickets.append(Ticket(data["ticket"], tuple(sent)))
    else:
        result.usage.add(data.get("usage") or {})


def _take(job: Job, sent: Sequence[int], data: Mapping[str, Any]) -> None:
    """Takes a row or a cell, if it is over and was not known."""
    at = data["index"]
    row = job.result.rows[sent[at]]
    if not row.pending or data.get("pending"):
        return
    details = data.get("details") or data
    error = data.get("error")
    job.result.rows[row.index] = Row(
        row.index,
        value=None if error else data.get("text", data.get("value")),
        error=row_error(row.index, at, error) if error else None,
        finish_reason=details.get("finish_reason"),
        probability=details.get("probability"),
    )
    job.on_progress(1)


def resume(job: Job) -> Flow[Result]:
    """Waits for what a deadline left: tickets first, then what was never sent."""
    while job.result.tickets:
        ticket = job.result.tickets[0]
        if not (yield from _look(job, ticket)):
            return job.result
        job.result.tickets.pop(0)
    return (yield from run(job))


def _look(job: Job, ticket: Ticket) -> Flow[bool]:
    """Looks at a ticket until it is over, or the deadline is."""
    wait = _FIRST_LOOK_S
    while True:
        reply = yield from ask(lambda: Call("GET", f"{job.path.split('?')[0]}/{ticket.id}"), job.retries)
        told = reply.body
        for at, found in enumerate(told.get("rows") or told.get("cells") or []):
            _take(job, ticket.rows, {**found, "index": at})
        if told["status"] not in ("running", "partial"):
            job.result.model = told.get("model") or job.result.model
            job.result.usage.add(told.get("usage") or {})
            error = told.get("error") or {"message": f"the relQuery is {told['status']}"}
            for row in ticket.rows:
                if job.result.rows[row].pending:
                    _fail(job, row, server_error(500, {"error": error}))
            return True
        if job.left_ms is not None and job.left_ms <= wait * 1000:
            return False
        yield Pause(wait)
        wait = min(wait * 1.5, _LAST_LOOK_S)
