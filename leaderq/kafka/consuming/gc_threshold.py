"""How seldom Python's garbage collector looks while a term drains.

The collector counts objects made less objects freed, and looks at the young ones when the count
passes its first threshold (700 by default); what has survived that some times is looked at again
with all that is older. Batches of records are thousands of objects that live for milliseconds, so
every batch passes the threshold many times, and the records that are read ahead are gone over again
and again; nothing is ever found there, for a record holds no cycle. That took a quarter to a half
of the time of a fast drain (``benchmarks/drain.py``; see ``docs/design/kafka.md``). So the
threshold is raised for as long as a term drains. What the user's own code leaves in cycles is
collected as surely, but in larger heaps.

Who is authoritative: the process has one threshold. What others set meanwhile is left alone: it is
put back only if it is still ours.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_wanted: list[int] = []
_before: tuple[int, int, int] | None = None
_ours: tuple[int, int, int] | None = None


@contextmanager
def collecting_seldom(threshold: int | None) -> Iterator[None]:
    """Raise the collector's first threshold to ``threshold`` objects; of several at a time the
    largest holds.

    Nothing is changed by ``None``, where the collector is off, or where its threshold is larger
    already.
    """
    if threshold is None:
        yield
        return
    with _lock:
        _wanted.append(threshold)
        _settle()
    try:
        yield
    finally:
        with _lock:
            _wanted.remove(threshold)
            _settle()


def _settle() -> None:
    """Set what is wanted now, or what was there before."""
    global _before, _ours
    now = gc.get_threshold()
    if _before is None or now != _ours:  # nobody wanted anything yet, or somebody else has set it since
        _before = now
    is_raised = bool(_wanted) and 0 < _before[0] < max(_wanted)
    _ours = (max(_wanted), *_before[1:]) if is_raised else _before
    if now != _ours:
        gc.set_threshold(*_ours)
    if not _wanted:
        _before = _ours = None
