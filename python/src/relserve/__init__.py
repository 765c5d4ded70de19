"""LLM columns over tables, on a RelServe server: a whole column is one request.

    from relserve import Client

    client = Client("http://localhost:8080", "rs-...")
    df["label"] = client.classify(df["review"], ["praise", "complaint"]).column
"""

from ._flow import Retries
from .client import AsyncClient, Client
from .errors import (
    BudgetSpent,
    ConnectionLost,
    DeadlinePassed,
    Forbidden,
    InvalidRequest,
    MissingColumn,
    NotFound,
    Overloaded,
    RelServeError,
    RowError,
    RowErrorsWarning,
    ServerError,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from .result import Result, Row, Ticket, Usage

__version__ = "0.1.0"

__all__ = [
    "AsyncClient",
    "BudgetSpent",
    "Client",
    "ConnectionLost",
    "DeadlinePassed",
    "Forbidden",
    "InvalidRequest",
    "MissingColumn",
    "NotFound",
    "Overloaded",
    "RelServeError",
    "Result",
    "Retries",
    "Row",
    "RowError",
    "RowErrorsWarning",
    "ServerError",
    "Ticket",
    "TooLarge",
    "Unauthorized",
    "Unavailable",
    "Usage",
]
