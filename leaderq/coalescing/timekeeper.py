"""Looks at keys when something is due on them although nobody comes: a head that was forgotten, a quiet that is over.

One daemon thread for a coordinator; it exists only while something is awaited, so a coordinator without safe time-out and
debounce never has one, and one that was dropped without being closed is not kept alive by it for long.
"""

from __future__ import annotations

import heapq
import logging
import threading
from collections.abc import Callable
from typing import Any

log = logging.getLogger("leaderq.coalescing")

_LINGER_S = 0.5
"""How long the thread waits for more before it ends."""


class Timekeeper:
    """Calls ``tend(key)`` at the times asked for, and again at the time which that gives.

    :param clock: gives seconds; must never go back.
    """

    def __init__(self, clock: Callable[[], float], tend: Callable[[Any], float | None]) -> None:
        self._clock = clock
        self._tend = tend
        self._changed = threading.Condition()
        self._due: list[tuple[float, int, Any]] = []
        self._number = 0
        self._thread: threading.Thread | None = None
        self._is_stopped = False

    def watch(self, due_s: float, key: Any) -> None:
        """Look at this key then."""
        with self._changed:
            if self._is_stopped:
                return
            self._number += 1
            heapq.heappush(self._due, (due_s, self._number, key))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="leaderq-coalescing-timekeeper", daemon=True)
                self._thread.start()
            elif self._due[0][1] == self._number:
                self._changed.notify()

    def stop(self, timeout_s: float = 5.0) -> None:
        """Look at nothing any more; the thread has ended when this returns (or within ``timeout_s``, if a callback holds it
        up)."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify()
            thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _run(self) -> None:
        while (key := self._next()) is not None:
            try:
                due_s = self._tend(key[0])
            except Exception:
                log.exception("key %r could not be looked after", key[0])
                continue
            if due_s is not None:
                self.watch(due_s, key[0])

    def _next(self) -> tuple[Any] | None:
        """The key that is due, once one is; nothing, once the thread is to end."""
        with self._changed:
            while not self._is_stopped:
                if not self._due:
                    if not self._changed.wait(_LINGER_S) and not self._due:
                        break
                    continue
                wait_s = self._due[0][0] - self._clock()
                if wait_s <= 0:
                    return (heapq.heappop(self._due)[2],)
                self._changed.wait(min(wait_s, threading.TIMEOUT_MAX))
            self._thread = None
            return None
