"""What can go wrong, as types. An error of the server carries the field and the limit that it names."""

from __future__ import annotations

import re
from typing import Any, Mapping, Optional, Type

# How the server spells a limit in its sentences.
_LIMITS = (
    re.compile(r"exceeds the limit of (\d+)"),
    re.compile(r"exceed the .+ of (\d+) tokens"),
    re.compile(r"the limit is (\d+)"),
    re.compile(r"must be an? \w+ from \S+ to (\d+)"),
    re.compile(r"has more than (\d+)"),
    re.compile(r"at most (\d+)"),
    re.compile(r"may send (\d+) requests"),
)


class RelServeError(Exception):
    """Everything that this package raises."""


class ConnectionLost(RelServeError):
    """The server was not reached, or went away in the middle."""


class MissingColumn(RelServeError):
    """The template names a column that the table does not have."""


class ServerError(RelServeError):
    """The server's own error object, of a request or of one row."""

    def __init__(
        self,
        message: str,
        *,
        status: Optional[int] = None,
        field: Optional[str] = None,
        kind: Optional[str] = None,
        code: Optional[str] = None,
        retry_after: Optional[float] = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.field = field
        self.kind = kind
        self.code = code
        self.retry_after = retry_after

    @property
    def limit(self) -> Optional[int]:
        """The limit that the message names, if it names one."""
        for pattern in _LIMITS:
            found = pattern.search(self.message)
            if found:
                return int(found.group(1))
        return None


class InvalidRequest(ServerError):
    """A field has a value that cannot be served (400, 422)."""


class TooLarge(InvalidRequest):
    """A body, a table or a text is over a limit (413)."""


class Unauthorized(ServerError):
    """No key, or not a valid one (401)."""


class Forbidden(ServerError):
    """The key may not do this (403)."""


class NotFound(ServerError):
    """A model or an id that the server does not have (404)."""


class Overloaded(ServerError):
    """Too much is asked already (429), also after waiting as long as the server said."""


class BudgetSpent(Overloaded):
    """The tenant's tokens are spent: waiting a little does not help."""


class DeadlinePassed(ServerError):
    """The deadline passed before there was an answer (504)."""


class Unavailable(ServerError):
    """The server or what it stands on is not there for now (503)."""


class RowError(ServerError):
    """What is wrong with one row. The other rows have their answers."""

    def __init__(self, index: int, message: str, **about: Any) -> None:
        super().__init__(message, **about)
        self.index = index


class RowErrorsWarning(UserWarning):
    """Some rows of a column failed; they are empty."""


_BY_STATUS: Mapping[int, Type[ServerError]] = {
    400: InvalidRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    413: TooLarge,
    422: InvalidRequest,
    429: Overloaded,
    503: Unavailable,
    504: DeadlinePassed,
}


def server_error(status: int, body: Any, retry_after: Optional[float] = None) -> ServerError:
    """The exception for an answer of 400 and above."""
    told = _error_object(body)
    kind = _BY_STATUS.get(status, ServerError)
    if told.get("code") == "budget_spent":
        kind = BudgetSpent
    if told.get("code") == "idempotency_key_in_use":
        # Another gateway runs the request that this one repeats.
        kind = Unavailable
    return kind(
        told.get("message") or f"the server answered with status {status}",
        status=status,
        field=told.get("param"),
        kind=told.get("type"),
        code=told.get("code"),
        retry_after=retry_after,
    )


def row_error(index: int, sent_index: int, body: Any) -> RowError:
    """The exception for a row. The server counts rows of a request, the caller those of the table."""
    told = _error_object({"error": body})

    def renumbered(text: Optional[str]) -> Optional[str]:
        return text and re.sub(rf"\b(rows|calls)\[{sent_index}\]", rf"\g<1>[{index}]", text)

    message = renumbered(told.get("message")) or "the row failed"
    return RowError(
        index, message, field=renumbered(told.get("param")), kind=told.get("type"), code=told.get("code")
    )


def _error_object(body: Any) -> Mapping[str, Any]:
    found = body.get("error") if isinstance(body, dict) else None
    return found if isinstance(found, dict) else {}
