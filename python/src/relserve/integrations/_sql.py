"""Cell functions as functions of SQL. It has no optional arguments, so that each takes the usual ones."""

from __future__ import annotations

from typing import Mapping, Sequence, Tuple

TEXT, TEXTS, NUMBER = "text", "texts", "number"

# The arguments and the result of each function.
FUNCTIONS: Mapping[str, Tuple[Sequence[str], str]] = {
    "ask": ((TEXT,), TEXT),
    "classify": ((TEXT, TEXTS), TEXT),
    "extract": ((TEXT, TEXT), TEXT),
    "summarize": ((TEXT,), TEXT),
    "translate": ((TEXT, TEXT), TEXT),
    "tag": ((TEXT, TEXTS), TEXT),
    "format": ((TEXT, TEXT), TEXT),
    "edit": ((TEXT, TEXT), TEXT),
    "list": ((TEXT, NUMBER), TEXTS),
    "rate": ((TEXT,), NUMBER),
}
