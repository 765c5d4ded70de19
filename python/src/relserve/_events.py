"""Server-sent events out of a byte stream, however it is cut into chunks."""

from __future__ import annotations

import codecs
import json
from typing import Any, Iterator, List, Tuple


class EventReader:
    """Reads chunks and gives whole events: the name and the JSON of each."""

    def __init__(self) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._rest = ""
        self._name = "message"
        self._data: List[str] = []

    def feed(self, chunk: bytes) -> Iterator[Tuple[str, Any]]:
        """The events that a chunk completes."""
        *lines, self._rest = (self._rest + self._decode(chunk)).split("\n")
        for line in lines:
            line = line.rstrip("\r")
            if line.startswith("event:"):
                self._name = line[6:].strip()
            elif line.startswith("data:"):
                self._data.append(line[5:].lstrip(" "))
            elif not line and self._data:
                yield self._name, json.loads("\n".join(self._data))
            if not line:
                self._name, self._data = "message", []
