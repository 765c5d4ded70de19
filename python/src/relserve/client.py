"""The clients: `Client`, and `AsyncClient`, whose methods are the same and are awaited."""

from __future__ import annotations

import asyncio
import json
import os
import time
from typing import Any, Awaitable, Dict, Generic, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

import httpx

from . import _flow
from ._events import EventReader
from ._flow import Call, Flow, Job, Pause, Reply, Retries
from .errors import ConnectionLost, RelServeError
from .functions import CellFunctions, call_arguments
from .progress import Progress, shown
from .result import Result, Ticket
from .tables import Table, cell, read_table, sent_columns

T = TypeVar("T")
R = TypeVar("R")

Cells = Sequence[Union[Mapping[str, Any], Sequence[Any]]]

_RELQUERIES = "/v1/relqueries"
# With details: how likely each label or rating was.
_CELLS = "/v1/cells?details=true"
# Half of what a body may have by default, and of the rows; a server with less says so and gets halves.
_WINDOW_BYTES = 8 << 20
_WINDOW_ROWS = 10_000


class _Calls(CellFunctions[R], Generic[R]):
    """What both clients offer. `R` is a result, or what gives one when it is awaited."""

    def __init__(
        self,
        base_url: Optional[str] = None,
        api_key: Optional[str] = None,
        *,
        model: Optional[str] = None,
        timeout: float = 120.0,
        retries: Retries = Retries(),
        window_rows: int = _WINDOW_ROWS,
        window_bytes: int = _WINDOW_BYTES,
        progress: Progress = None,
    ) -> None:
        url = base_url or os.environ.get("RELSERVE_URL") or "http://localhost:8080"
        self.base_url = url.rstrip("/")
        if self.base_url.endswith("/v1"):
            self.base_url = self.base_url[: -len("/v1")]
        self.model = model
        self._key = api_key or os.environ.get("RELSERVE_KEY")
        self._timeout = timeout
        self._retries = retries
        self._window = (window_rows, window_bytes)
        self._progress = progress

    def _finish(self, job: Job, flow: Flow[Result], progress: Progress) -> R:
        raise NotImplementedError

    def relquery(
        self,
        table: Any,
        template: str,
        *,
        columns: Optional[Sequence[str]] = None,
        choice: Optional[Sequence[str]] = None,
        integer: Optional[Tuple[int, int]] = None,
        regex: Optional[str] = None,
        json_schema: Optional[Mapping[str, Any]] = None,
        deadline: Optional[float] = None,
        progress: Progress = None,
        **options: Any,
    ) -> R:
        """Fills the template from each row and asks the model; the whole table is one request, up to the server's
        limits.

        `table` is a pandas, polars or Arrow table or column, or a list of dicts or texts (whose column is `text`).
        `deadline` is in seconds: what is not there by then stays pending, see `resume`. Other options are the fields
        of `POST /v1/relqueries`: `system`, `max_tokens`, `temperature`, `order`, `class_`, `cache`, ...
        """
        read = read_table(table)
        names = sent_columns(read, template, columns)
        rows = read.rows(names)
        fields = {"template": template, "columns": names, **self._fields(options)}
        constraint = _constraint(choice, integer, regex, json_schema)
        if constraint is not None:
            fields["constraint"] = constraint
        sizes = [sum(_bytes(value) for value in row) for row in rows]
        job = self._job(_RELQUERIES, read, sizes, deadline)
        job.body = lambda places: {**fields, "rows": [rows[place] for place in places]}
        return self._finish(job, _flow.run(job), progress)

    def cells(
        self,
        calls: Cells,
        *,
        like: Any = None,
        deadline: Optional[float] = None,
        progress: Progress = None,
        **options: Any,
    ) -> R:
        """Calls of cell functions, `("rate", "A fine lens.")` or `{"function": "rate", "args": [..]}` each.

        `like` is a column: the result's has its kind. Other options are the fields of `POST /v1/cells`.
        """
        sent = [_call(call) for call in calls]
        fields = self._fields(options)
        read = read_table(like) if like is not None else Table([], len(sent), lambda _: [], list)
        sizes = [_bytes(call["args"]) for call in sent]
        job = self._job(_CELLS, read, sizes, deadline)
        job.body = lambda places: {**fields, "calls": [sent[place] for place in places]}
        return self._finish(job, _flow.run(job), progress)

    def map(self, function: str, *arguments: Any, **options: Any) -> R:
        """Any function of the catalogue, by its name: `map("classify", df["review"], ["good", "bad"])`."""
        calls, column = call_arguments(function, arguments)
        result = self.cells([(function, *call) for call in calls], **options)
        return self._shaped(result, column)

    def _shaped(self, result: R, column: Optional[Table]) -> R:
        raise NotImplementedError

    def resume(self, result: Result, *, deadline: Optional[float] = None, progress: Progress = None) -> R:
        """Waits for what a deadline left pending in a result of this client; the same result is filled in."""
        job = result.job
        if job is None:
            raise RelServeError("this result was not made by a client")
        job.until = None if deadline is None else time.monotonic() + deadline
        return self._finish(job, _flow.resume(job), progress)

    def ticket(self, id: str, rows: int, *, deadline: Optional[float] = None, progress: Progress = None) -> R:
        """Waits for a ticket of another process: its id, and how many rows it has."""
        path = _CELLS if id.startswith("cl-") else _RELQUERIES
        job = self._job(path, Table([], rows, lambda _: [], list), [0] * rows, deadline)
        job.result.tickets.append(Ticket(id, tuple(range(rows))))
        return self._finish(job, _flow.resume(job), progress)

    def _fields(self, options: Mapping[str, Any]) -> Dict[str, Any]:
        """Fields of a body; `class_` is for `class`, which is a word of Python's."""
        fields = {name.rstrip("_"): value for name, value in options.items() if value is not None}
        if self.model is not None:
            fields.setdefault("model", self.model)
        return fields

    def _job(self, path: str, table: Table, sizes: Sequence[int], deadline: Optional[float]) -> Job:
        window_rows, window_bytes = self._window
        job = Job(
            path=path,
            body=lambda places: {},
            row_bytes=sizes,
            result=Result(len(sizes), table.make_column),
            retries=self._retries,
            window_rows=window_rows,
            window_bytes=window_bytes,
            until=None if deadline is None else time.monotonic() + deadline,
        )
        job.result.job = job
        return job

    def _request(self, call: Call) -> Dict[str, Any]:
        """A call as httpx takes it."""
        headers = {"Accept": "application/json", **call.headers}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        request: Dict[str, Any] = {"method": call.method, "url": self.base_url + call.path, "headers": headers}
        if call.body is not None:
            headers["Content-Type"] = "application/json"
            body = json.dumps(call.body, ensure_ascii=False, separators=(",", ":"))
            request["content"] = body.encode("utf-8", errors="replace")
        return request


class Client(_Calls[Result]):
    """A client of one server. Its address and key may come from `RELSERVE_URL` and `RELSERVE_KEY`."""

    def __init__(self, *args: Any, transport: Optional[httpx.BaseTransport] = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._http = httpx.Client(timeout=self._timeout, transport=transport)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes its connections."""
        self._http.close()

    def models(self) -> List[Dict[str, Any]]:
        """The served models."""
        return self._drive(_data("/v1/models", self._retries))

    def catalogue(self) -> List[Dict[str, Any]]:
        """The cell functions that the server has."""
        return self._drive(_data("/v1/catalogue", self._retries))

    def _shaped(self, result: Result, column: Optional[Table]) -> Result:
        return result.shaped(column)

    def _finish(self, job: Job, flow: Flow[Result], progress: Progress) -> Result:
        with shown(self._progress if progress is None else progress, len(job.result)) as job.on_progress:
            return self._drive(flow)

    def _drive(self, flow: Flow[T]) -> T:
        answer: Any = None
        while True:
            try:
                step = flow.throw(answer) if isinstance(answer, Exception) else flow.send(answer)
            except StopIteration as end:
                value: T = end.value
                return value
            if isinstance(step, Pause):
                time.sleep(step.seconds)
                answer = None
                continue
            try:
                answer = self._send(step)
            except httpx.HTTPError as error:
                answer = ConnectionLost(f"{self.base_url}: {error or type(error).__name__}")

    def _send(self, call: Call) -> Reply:
        with self._http.stream(**self._request(call)) as response:
            if call.on_event is None or response.status_code >= 400:
                return _reply(response, response.read())
            events = EventReader()
            for chunk in response.iter_bytes():
                for name, data in events.feed(chunk):
                    call.on_event(name, data)
            return Reply(response.status_code, None, response.headers)


class AsyncClient(_Calls[Awaitable[Result]]):
    """The client whose methods are awaited."""

    def __init__(self, *args: Any, transport: Optional[httpx.AsyncBaseTransport] = None, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._http = httpx.AsyncClient(timeout=self._timeout, transport=transport)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes its connections."""
        await self._http.aclose()

    async def models(self) -> List[Dict[str, Any]]:
        """The served models."""
        return await self._drive(_data("/v1/models", self._retries))

    async def catalogue(self) -> List[Dict[str, Any]]:
        """The cell functions that the server has."""
        return await self._drive(_data("/v1/catalogue", self._retries))

    async def _shaped(self, result: Awaitable[Result], column: Optional[Table]) -> Result:
        return (await result).shaped(column)

    async def _finish(self, job: Job, flow: Flow[Result], progress: Progress) -> Result:
        with shown(self._progress if progress is None else progress, len(job.result)) as job.on_progress:
            return await self._drive(flow)

    async def _drive(self, flow: Flow[T]) -> T:
        answer: Any = None
        while True:
            try:
                step = flow.throw(answer) if isinstance(answer, Exception) else flow.send(answer)
            except StopIteration as end:
                value: T = end.value
                return value
            if isinstance(step, Pause):
                await asyncio.sleep(step.seconds)
                answer = None
                continue
            try:
                answer = await self._send(step)
            except httpx.HTTPError as error:
                answer = ConnectionLost(f"{self.base_url}: {error or type(error).__name__}")

    async def _send(self, call: Call) -> Reply:
        async with self._http.stream(**self._request(call)) as response:
            if call.on_event is None or response.status_code >= 400:
                return _reply(response, await response.aread())
            events = EventReader()
            async for chunk in response.aiter_bytes():
                for name, data in events.feed(chunk):
                    call.on_event(name, data)
            return Reply(response.status_code, None, response.headers)


def _data(path: str, retries: Retries) -> Flow[List[Dict[str, Any]]]:
    reply = yield from _flow.ask(lambda: Call("GET", path), retries)
    found: List[Dict[str, Any]] = reply.body["data"]
    return found


def _reply(response: httpx.Response, content: bytes) -> Reply:
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if body is None and response.status_code < 400:
        raise httpx.DecodingError("the answer is not JSON: is this a RelServe server?")
    return Reply(response.status_code, body, response.headers)


def _constraint(
    choice: Optional[Sequence[str]],
    integer: Optional[Tuple[int, int]],
    regex: Optional[str],
    json_schema: Optional[Mapping[str, Any]],
) -> Optional[Dict[str, Any]]:
    given: Dict[str, Any] = {
        "choice": None if choice is None else list(choice),
        "integer": None if integer is None else {"min": integer[0], "max": integer[1]},
        "regex": regex,
        "json_schema": json_schema,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if len(given) > 1:
        raise ValueError(f"one of {', '.join(given)}, not several")
    return given or None


def _call(call: Union[Mapping[str, Any], Sequence[Any]]) -> Dict[str, Any]:
    if isinstance(call, Mapping):
        return dict(call)
    return {"function": call[0], "args": [arg if isinstance(arg, (list, tuple)) else cell(arg) for arg in call[1:]]}


def _bytes(value: Any) -> int:
    """About how long a value is as JSON."""
    if isinstance(value, str):
        return len(value.encode("utf-8", errors="replace")) + 8
    return sum(_bytes(item) for item in value) + 64 if isinstance(value, (list, tuple)) else 24
