"""Other libraries' ways to say "for each row", each of which sends a batch of rows as one request.

Where a library leaves no place for a client, the one of `use` is taken, else one by `RELSERVE_URL` and
`RELSERVE_KEY`.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any, Optional

from ..client import Client
from ..errors import RowErrorsWarning
from ..result import Result

_lock = threading.Lock()
_used: Optional[Client] = None


def use(client: Optional[Client]) -> None:
    """Sets the client of accessors and functions; None: the one that the environment names."""
    global _used
    with _lock:
        _used = client


def client() -> Client:
    """The client that is used."""
    global _used
    with _lock:
        if _used is None:
            _used = Client()
        return _used


def column(result: Result, errors: str = "warn") -> Any:
    """A result's column. Rows that failed are empty in it: `errors` says whether to `warn`, `raise` or `ignore`."""
    if errors not in ("warn", "raise", "ignore"):
        raise ValueError(f"`errors` must be `warn`, `raise` or `ignore`, not `{errors}`")
    if errors == "raise":
        result.raise_for_errors()
    if errors == "warn" and result.errors:
        index, first = next(iter(result.errors.items()))
        told = f"{len(result.errors)} of {len(result)} rows failed; row {index}: {first.message}"
        warnings.warn(told, RowErrorsWarning, stacklevel=3)
    return result.column
