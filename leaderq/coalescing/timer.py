"""Looks at keys when something is due on them although nobody comes: an overdue head, the end of a
debounce window.

One daemon thread for a coordinator; it exists only while something is awaited, so a coordinator
that was dropped without being closed is not kept alive by it for long.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections.abc import Callable
from typing import Any

from leaderq.threads import Service, primitives

log = logging.getLogger(__name__)


class KeyTimer:
    """Calls ``tend(key)`` at the times asked for, in seconds of ``clock``, and logs what it raises.
    At most one entry is kept for a key, and none once it is forgotten.
    """

    def __init__(self, clock: Callable[[], float], tend: Callable[[Any], object]) -> None:
        self._clock = clock
        self._tend = tend
        self._lock = primitives.Lock()
        self._heap: list[tuple[float, int, Any]] = []
        self._due: dict[Any, float] = {}
        """The time that counts for a key; other entries of it in the heap are void."""
        self._number = 0
        self._service: Service | None = None
        self._is_stopped = False

    def watch(self, due_s: float, key: Any) -> None:
        """Look at this key then, or earlier if that was asked for before."""
        with self._lock:
            if self._is_stopped or self._due.get(key, math.inf) <= due_s:
                return
            self._number += 1
            self._due[key] = due_s
            heapq.heappush(self._heap, (due_s, self._number, key))
            if self._service is None:
                self._service = Service("leaderq-coalescing-timer", self._run)
                self._service.start()
            elif self._heap[0][1] == self._number:
                self._service.wake()

    def forget(self, key: Any) -> None:
        with self._lock:
            if self._due.pop(key, None) is not None and len(self._heap) > 2 * len(self._due) + 64:
                self._heap = [one for one in self._heap if self._due.get(one[2]) == one[0]]
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
        wait_s: float | None = 0.0
        while wait_s is not None and service.wait(wait_s):
            keys, wait_s = self._overdue()
            for key in keys:
                try:
                    self._tend(key)
                except BaseException:  # a user's function raised it, and other keys are waited for
                    log.exception("key not tended key=%r", key)

    def _overdue(self) -> tuple[list[Any], float | None]:
        """Return the keys that are due, and how long to wait for the next; ``None``: end."""
        keys = []
        now_s = self._clock()
        with self._lock:
            while self._heap and (
                self._heap[0][0] <= now_s or self._due.get(self._heap[0][2]) != self._heap[0][0]
            ):
                due_s, _, key = heapq.heappop(self._heap)
                if self._due.get(key) == due_s:
                    del self._due[key]
                    keys.append(key)
            if self._heap:
                return keys, self._heap[0][0] - now_s
            self._service = None
            return keys, None
