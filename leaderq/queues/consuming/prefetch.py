"""Items that are ours and not begun yet, in order; and how many of them there should be.

Claiming ahead saves a wait for the servers. But an item claimed ahead waits for *this* consumer
and, without a lock path, is lost if the process dies. So as much is claimed ahead as the workers
handle in :data:`AHEAD_S` seconds, at their measured rate: a worker's time runs from when it takes
items until it asks for more.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import Any

from leaderq.base import clock
from leaderq.queues.consuming.items import Claim
from leaderq.threads import primitives

AHEAD_S = 0.05
"""Items claimed ahead should keep the workers busy no longer than this, in seconds."""
_WEIGHT = 0.2


class Prefetch:
    """Holds claimed items until they are handed out. The engine's thread shares it with the workers
    (or with the users' threads that take items); each caller bounds its own wait.

    ``key``: the sort key of names. ``may_begin``: whether items may be handed out now; called under
    the lock, so it must not block. ``notify_wanted``: called when more is wanted. ``slack``: how
    many of one listing are handed out even if something more urgent has come.
    """

    def __init__(
        self,
        key: Callable[[str], Any],
        may_begin: Callable[[], bool],
        notify_wanted: Callable[[], object],
        slack: int = 0,
        most_ahead: int = 100,
        workers: int = 1,
    ) -> None:
        self._key, self._is_allowed, self._notify_wanted = key, may_begin, notify_wanted
        self._slack, self._most_ahead, self._workers = slack, most_ahead, workers
        self._since_refresh = 0
        # the order of the most urgent newcomer since the last refresh
        self.came: Any = None
        self._changed = primitives.Condition()
        self._heap: list[tuple[Any, str, Claim]] = []
        self.wanted = 0
        """How many values those who wait would take now; each wants one or more."""
        self.asks = self.answered = 0
        """How many have asked whether there is any item, and how many of these know the answer."""
        self.bytes = self.values = 0
        """Of those that are ready."""
        self.is_closed = False
        self.taken = self.taken_again = 0
        """Values handed out, and those of them that had failed before."""
        self._target, self._taken_s = 0, clock.now_s()
        self._given: dict[int, tuple[float, int]] = {}  # by thread: when, and how many values
        self.average_s: float | None = None
        """Seconds that a worker needs for a value; ``None`` before the first is done."""

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def first(self) -> Claim | None:
        with self._changed:
            return self._heap[0][2] if self._heap else None

    def put(self, claims: Iterable[Claim], *, before: Any = None) -> None:
        """Add claimed items. ``before``: the sort key of the first name that is not claimed."""
        with self._changed:
            for claim in claims:
                heapq.heappush(self._heap, (self._key(claim.name), claim.name, claim))
                self.bytes += len(claim.data)
                self.values += claim.count
            if before is not None and self._heap and before < self._heap[0][0]:
                self._note(before)
            self._changed.notify_all()

    def ask(self) -> int:
        """Ask whether the queue is empty, and return the number of the question: :attr:`answered`
        reaches it when the queue was found empty after this call.
        """
        with self._changed:
            self.asks += 1
            return self.asks

    def answer(self, asks: int) -> None:
        """The queue was found empty after the first ``asks`` questions."""
        with self._changed:
            if asks > self.answered:
                self.answered = asks
                self._changed.notify_all()

    def take(
        self,
        most: int,
        timeout_s: float | None,
        *,
        is_batch: bool = False,
        wants: int = 1,
        ask: int | None = None,
    ) -> list[Claim]:
        """Take the next items, at most ``most``. Returns an empty list after ``timeout_s`` seconds
        without items, if this is closed and empty, or once ``ask`` is answered. ``is_batch``: take
        at most ``most`` values, or one znode; an item that failed before is taken alone, because it
        may be what makes the others fail. ``wants``: how many values to claim for this caller while
        it waits.
        """
        thread = primitives.get_ident()
        with self._changed:
            taken_s = clock.now_s()
            if (given := self._given.pop(thread, None)) is not None:
                took_s = (taken_s - given[0]) / given[1]
                former_s = took_s if self.average_s is None else self.average_s
                self.average_s = former_s + _WEIGHT * (took_s - former_s)
            if not (has_next := self._has_next()):
                has_next = self._await(timeout_s, wants, ask)
                taken_s = clock.now_s()
            found: list[Claim] = []
            values = 0
            while has_next:
                head = self._heap[0][2]
                is_apart = bool(found) and bool(found[0].failures or head.failures)
                if found and is_batch and (values + head.count > most or is_apart):
                    break
                found.append(heapq.heappop(self._heap)[2])
                values += head.count
                self.taken_again += head.count if head.failures else 0
                self.bytes -= len(head.data)
                has_next = len(found) < most and self._has_next()
            self.values -= values
            self.taken += values
            self._since_refresh += len(found)
            self._taken_s = taken_s
            if values:
                self._given[thread] = (taken_s, values)
            if self.values <= self._target // 2 < self.values + values:
                self._notify_wanted()
            return found

    def _await(self, timeout_s: float | None, wants: int, ask: int | None) -> bool:
        self.wanted += wants
        if not self._heap:
            self._notify_wanted()

        def is_over() -> bool:
            is_answered = ask is not None and self.answered >= ask
            return self.is_closed or is_answered or self._has_next()

        try:
            self._changed.wait_for(is_over, timeout_s)
        finally:
            self.wanted -= wants
        return self._has_next()

    def _has_next(self) -> bool:
        if not self._heap or not self._is_allowed():
            return False
        return not (self.is_overtaken and self._since_refresh >= self._slack)

    def has_come(self, name: str) -> None:
        """Note that a name has come into the queue. Nothing that goes after it is handed out before
        :meth:`refreshed`, except the slack. This holds even if nothing is ready, because claims
        under way may be put here later.
        """
        with self._changed:
            self._note(self._key(name))

    def _note(self, key: Any) -> None:
        if key is not None and (self.came is None or key < self.came):
            self.came = key

    def refreshed(self, came: Any, first: Any) -> None:
        """Note that newcomers up to ``came`` are known. ``first``: the sort key of the first name
        that waits. Call this while nothing is being claimed.
        """
        with self._changed:
            if self.came == came:
                is_late = first is not None and any(first < key for key, _, _ in self._heap)
                self.came = first if is_late else None
                if not self.is_overtaken:
                    self._since_refresh = 0
                self._changed.notify_all()

    @property
    def is_overtaken(self) -> bool:
        """Whether a newcomer goes before every item that is ready."""
        if self.came is None:
            return False
        with self._changed:
            return bool(self._heap) and self.came is not None and self.came < self._heap[0][0]

    def recheck(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def drain(self, is_wanted: Callable[[Claim], bool] = lambda claim: True) -> list[Claim]:
        """Take out and return the items that ``is_wanted`` selects, all by default."""
        with self._changed:
            heap, self._heap, self.bytes, self.values = self._heap, [], 0, 0
            self.put(claim for _, _, claim in heap if not is_wanted(claim))
            return [claim for _, _, claim in heap if is_wanted(claim)]

    def close(self) -> None:
        """Close, and wake all waiting callers; items already here may still be taken."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def appetite(self) -> int:
        """How many values to hold ready for busy workers."""
        if self.average_s is not None:
            busy = int(AHEAD_S * self._workers / max(self.average_s, 1e-6))
            self._target = min(self._most_ahead, busy)
        return self._target

    def busy_s(self) -> float:
        """Seconds since a worker last took items; 0 while one waits for items."""
        return 0.0 if self.wanted else clock.now_s() - self._taken_s
