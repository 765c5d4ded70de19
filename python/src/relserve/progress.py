"""A bar of finished rows: tqdm's where it is installed and somebody looks, else none."""

from __future__ import annotations

import contextlib
import sys
from typing import Callable, Iterator, Optional, Protocol, Union

Progress = Union[None, bool, Callable[[int, int], None]]


@contextlib.contextmanager
def shown(progress: Progress, total: int) -> Iterator[Callable[[int], object]]:
    """Yields what is told of finished rows. `progress` is True, False, None (a terminal or a notebook has a bar) or
    a function of the rows done and all rows."""
    if callable(progress):
        done = 0

        def tell(rows: int) -> None:
            nonlocal done
            done += rows
            progress(done, total)

        yield tell
        return
    bar = None if progress is False else _bar(total, is_asked=progress is True)
    if bar is None:
        yield lambda rows: None
        return
    try:
        yield bar.update
    finally:
        bar.close()


def _bar(total: int, is_asked: bool) -> Optional[_Bar]:
    if not is_asked and not sys.stderr.isatty() and "ipykernel" not in sys.modules:
        return None
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return None
    bar: _Bar = tqdm(total=total, unit="row")
    return bar


class _Bar(Protocol):
    """What is used of tqdm's."""

    def update(self, rows: int) -> object: ...

    def close(self) -> object: ...
