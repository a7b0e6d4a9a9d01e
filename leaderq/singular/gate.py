"""The way into a bounded queue: room for so many, first come first served when there is none, nothing after it is shut.

The quick way in is not here: a producer that reads ``room`` and finds the line shorter puts its request itself.
``room`` is 0 when the gate is shut, not open yet, or when somebody waits; so nobody overtakes one who waits. Then
:meth:`Gate.enter` decides, under ``_mutex``.

States: new -> open <-> occupied (somebody waits) -> shut. At the high mark (``capacity``) the gate becomes occupied; at
the low mark the writer lets in those who wait, in their order, by putting their requests for them: so what they were
promised nobody can take. The quick way looks and puts in two steps, so producers that are there at the same instant may
exceed the capacity by one each, less one.

No wake-up is lost: who comes to wait is noted first and looks at the length again after that, and the writer looks for
those who wait whenever it has brought the line down to the low mark, and before it sleeps.
"""

from __future__ import annotations

import math
import sys
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Any

from leaderq.errors import LeaderqError, QueueFull, WouldDeadlock
from leaderq.singular.waits import Writing, begin_wait, end_wait

CHUNK = 256
"""How many requests are doled out before the writer looks up, at most."""


class _Arrival:
    """One request that waits for room: noted, then let in, refused or withdrawn."""

    __slots__ = ("is_in", "item", "refusal", "wake")

    def __init__(self, item: Any, wake: Callable[[], object]) -> None:
        self.item = item
        self.wake = wake
        self.is_in = False
        self.refusal: LeaderqError | None = None


def _release(lock: threading.Lock) -> None:
    if lock.locked():
        lock.release()


class Gate:
    """Lets requests into ``line``. ``room`` may be read by anybody; ``refused`` counts those that did not get in."""

    __slots__ = (
        "_mutex",
        "_waiting",
        "_why_shut",
        "_writing",
        "capacity",
        "is_over",
        "line",
        "low",
        "refused",
        "room",
        "stride",
    )

    def __init__(self, line: SimpleQueue[Any], writing: Writing, *, capacity: int | None, low: int) -> None:
        self.line = line
        self.capacity = sys.maxsize if capacity is None else capacity
        self.low = low if capacity is not None else -1
        self.stride = min(CHUNK, self.capacity - self.low)
        """How many the writer may take without looking for those who wait: the low mark is no nearer to a full line."""
        self.room = 0
        self.refused = 0
        self.is_over = False
        """Whether the writer has ended: what is put now nobody takes."""
        self._writing = writing
        self._mutex = threading.RLock()
        self._waiting: deque[_Arrival] = deque()
        self._why_shut: Callable[[], LeaderqError] | None = None

    @property
    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._waiting)

    @property
    def is_shut(self) -> bool:
        """Whether nothing gets in any more."""
        return self._why_shut is not None

    def open(self) -> None:
        """Let requests in, unless it is shut."""
        with self._mutex:
            if self._why_shut is None and not self._waiting:
                self.room = self.capacity

    def shut(self, why: Callable[[], LeaderqError]) -> bool:
        """Let nothing in from now on; who waits or comes later gets an error of ``why()``. Whether it was open."""
        with self._mutex:
            self.room = 0
            is_first = self._why_shut is None
            if self._why_shut is None:
                self._why_shut = why
            while self._waiting:  # also if an interrupt kept whoever was first from finishing
                arrival = self._waiting[0]
                if not arrival.is_in and arrival.refusal is None:
                    arrival.refusal = self._why_shut()
                    self.refused += 1
                arrival.wake()
                self._waiting.popleft()
            return is_first

    def renounce(self, why: Callable[[], LeaderqError]) -> None:
        """In a child that was forked: shut it, whatever state the parent's threads have left it in."""
        self._mutex = threading.RLock()
        self._waiting = deque()
        self._why_shut = why
        self.room = 0

    def relieve(self) -> None:
        """For the writer, at the low mark: let in those who wait, as far as there is room."""
        with self._mutex:
            while self._waiting and (self._waiting[0].is_in or self.line.qsize() < self.capacity):
                arrival = self._waiting[0]
                if not arrival.is_in:  # it is if an interrupt came after it was put; none can come between these two
                    arrival.is_in = True
                    self.line.put(arrival.item)
                arrival.wake()
                self._waiting.popleft()
            self.open()

    def enter(self, item: Any, wait_s: float) -> None:
        """Put ``item`` into the line, when there is room; wait ``wait_s`` seconds for it at most.

        :raises QueueFull: there was none. :raises QueueClosed: the gate is shut, or was meanwhile.
        :raises WouldDeadlock: only the calling thread can make room (in a ring of queues; into its own line a writer
            gets without room).
        """
        wake = threading.Lock()
        wake.acquire()
        arrival = self._arrive(item, partial(_release, wake), wait_s)
        if arrival is None:
            return
        deadlock = None
        try:
            mine = begin_wait(self._writing, f"for room in queue {self._writing.name!r}")
            try:
                wake.acquire(timeout=-1 if wait_s > threading.TIMEOUT_MAX else wait_s)
            finally:
                end_wait(mine)
        except WouldDeadlock as error:
            deadlock = error
        finally:
            is_over = self._withdraw(arrival)
        if not is_over:
            raise deadlock or self._full(wait_s)
        if arrival.refusal is not None:
            raise arrival.refusal

    async def enter_async(self, item: Any, wait_s: float) -> None:
        """As :meth:`enter`, for a task of an asyncio loop, which goes on meanwhile."""
        import asyncio  # here, for most who use queues do without

        loop = asyncio.get_running_loop()
        woken = asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(woken.set)
            except RuntimeError:  # the loop is closed, and with it whoever waited
                pass

        arrival = self._arrive(item, wake, wait_s)
        if arrival is None:
            return
        try:
            await asyncio.wait_for(woken.wait(), None if wait_s == math.inf else wait_s)
        except asyncio.TimeoutError:  # 3.10 has its own
            pass
        finally:
            is_over = self._withdraw(arrival)
        if not is_over:
            raise self._full(wait_s)
        if arrival.refusal is not None:
            raise arrival.refusal

    def _arrive(self, item: Any, wake: Callable[[], object], wait_s: float) -> _Arrival | None:
        """In at once (``None``), or noted among those who wait."""
        with self._mutex:
            if self._why_shut is not None:
                self.refused += 1
                raise self._why_shut()
            # Its own writer alone could make the room that it would wait for.
            if self._writing.is_mine() or (not self._waiting and self.line.qsize() < self.capacity):
                self.line.put(item)
                self.open()  # should an interrupt have kept the last who waited from it
                return None
            if wait_s <= 0:
                self.refused += 1
                raise self._full(0.0)
            arrival = _Arrival(item, wake)
            self._waiting.append(arrival)
            self.room = 0
            if self.line.qsize() <= self.low:  # the writer may have looked just before
                self.relieve()
            return arrival

    def _withdraw(self, arrival: _Arrival) -> bool:
        """No more wait for room; whether it was decided already."""
        with self._mutex:
            if arrival.is_in or arrival.refusal is not None:
                return True
            self._waiting.remove(arrival)
            self.refused += 1
            self.open()
            return False

    def _full(self, waited_s: float) -> QueueFull:
        return QueueFull(self._writing.name, capacity=self.capacity, waited_s=waited_s)
