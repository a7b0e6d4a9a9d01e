"""Looks at keys when something is due on them although nobody comes: an overdue head, the end of a
debounce window, an idle key to be forgotten.

One daemon thread for a coordinator; it exists only while something is awaited, so a coordinator
that was dropped without being closed is not kept alive by it for long.
"""

from __future__ import annotations

import heapq
import logging
from collections.abc import Callable
from typing import Any

from leaderq.threads import Service, primitives

log = logging.getLogger(__name__)

_LINGER_S = 0.5
"""How long the thread waits for more before it ends."""


class KeyTimer:
    """Calls ``tend(key)`` at the times asked for, in seconds of ``clock``, and logs what it raises.
    At most one entry is kept for a key, and none once it is forgotten.
    """

    def __init__(self, clock: Callable[[], float], tend: Callable[[Any], object]) -> None:
        self._clock = clock
        self._tend = tend
        self._lock = primitives.Lock()
        self._heap: list[tuple[float, int, Any]] = []
        self._due: dict[Any, tuple[float, int]] = {}
        """The one entry of the heap that counts for a key; others of it are void."""
        self._number = 0
        self._service: Service | None = None
        self._is_stopped = False

    def watch(self, due_s: float, key: Any) -> None:
        """Look at this key then, or earlier if that was asked for before."""
        with self._lock:
            known = self._due.get(key)
            if self._is_stopped or (known is not None and known[0] <= due_s):
                return
            self._number += 1
            self._due[key] = due_s, self._number
            heapq.heappush(self._heap, (due_s, self._number, key))
            if self._service is None:
                self._service = Service("leaderq-coalescing-timer", self._run)
                self._service.start()
            elif self._heap[0][1] == self._number:
                self._service.wake()

    def forget(self, key: Any) -> None:
        with self._lock:
            if self._due.pop(key, None) is not None and len(self._heap) > 2 * len(self._due) + 64:
                self._heap = [(due_s, number, one) for one, (due_s, number) in self._due.items()]
                heapq.heapify(self._heap)

    def begin_again(self) -> None:
        """In a forked child, which has neither the thread nor anything to look at."""
        self._lock = primitives.Lock()
        self._heap, self._due, self._service = [], {}, None

    def stop(self, timeout_s: float = 5.0) -> None:
        """End the thread; if a callback holds it up, wait ``timeout_s`` at most."""
        with self._lock:
            self._is_stopped = True
            service = self._service
        if service is not None:
            service.stop(timeout_s)

    def _run(self, service: Service) -> None:
        is_last = False
        while not service.is_stopping:
            keys, wait_s = self._overdue(service, is_last)
            if wait_s is None:
                return
            for key in keys:
                try:
                    self._tend(key)
                except BaseException:  # a user's function raised it, and other keys are waited for
                    log.exception("key not tended key=%r", key)
            is_last = not keys and wait_s == _LINGER_S
            if not keys:
                service.wait(wait_s)

    def _overdue(self, service: Service, is_last: bool) -> tuple[list[Any], float | None]:
        """Return the keys that are due, and how long to wait if there are none; ``None``: end."""
        keys = []
        now_s = self._clock()
        with self._lock:
            while self._heap:
                due_s, number, key = self._heap[0]
                if self._due.get(key) != (due_s, number):
                    heapq.heappop(self._heap)
                elif due_s <= now_s:
                    heapq.heappop(self._heap)
                    del self._due[key]
                    keys.append(key)
                else:
                    break
            if keys or self._heap:
                return keys, max(0.0, self._heap[0][0] - now_s) if self._heap else 0.0
            if is_last and self._service is service:
                self._service = None
                return [], None
            return [], _LINGER_S
