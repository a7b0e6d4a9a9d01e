"""How long the calls of ``handle`` that run now have been going on, so that one that hangs is found
out although everything else of its leader is well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from leaderq.clock import now_s
from leaderq.kafka.handling.on_error import place_of
from leaderq.kafka.record import Record
from leaderq.term import Term


class HandleCalls:
    """Calls ``handle``, on any thread, and knows which calls have not returned. Thread-safe."""

    def __init__(self, handle: Callable[[Sequence[Record], Term], None]) -> None:
        self._handle = handle
        self._running: dict[int, tuple[float, Sequence[Record]]] = {}

    def __call__(self, records: Sequence[Record], term: Term) -> None:
        """Call it; returns and raises what it does."""
        thread = threading.get_ident()
        self._running[thread] = now_s(), records
        try:
            return self._handle(records, term)
        finally:
            self._running.pop(thread, None)

    def overdue(self, budget_s: float) -> list[str]:
        """What has been handled for longer than ``budget_s`` seconds, each as a sentence."""
        now, running = now_s(), list(self._running.values())
        return [
            f"handle has been called for {now - began_s:.1f} s with {len(records)} record(s) from {place_of(records[0])}"
            for began_s, records in running
            if now - began_s > budget_s
        ]
