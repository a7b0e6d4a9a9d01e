"""Items that are ours and not begun yet, in order; and how many of them there should be.

What is claimed ahead hides the way to the servers, but waits for *this* consumer and, without a
lock path, is lost if the process dies. So it is as much as the workers do in :data:`AHEAD_S`, by
the time that passed from when they were given something to when they came again.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable
from typing import Any

from leaderq.clock import now_s
from leaderq.queues.consuming.claims import Claim

AHEAD_S = 0.05
"""What is claimed ahead should keep the workers busy no longer than this, in seconds."""
_WEIGHT = 0.2


class Prefetch:
    """Shared by the engine's thread and the workers (or those who take); every wait is bounded by
    its caller.

    ``key``: the order of names. ``may_begin``: whether anything may be handed out now; asked under
    the lock, so it must not block. ``notify_wanted``: called when more is wanted. ``slack``: how
    many may still be handed out after something more urgent has come.
    """

    def __init__(
        self,
        key: Callable[[str], Any],
        may_begin: Callable[[], bool],
        notify_wanted: Callable[[], object],
        *,
        slack: int = 0,
        most_ahead: int = 100,
        workers: int = 1,
    ) -> None:
        self._key = key
        self._is_allowed = may_begin
        self._notify_wanted = notify_wanted
        self._slack = slack
        self._most_ahead = most_ahead
        self._workers = workers
        self._since_refresh = 0
        # the order of the most urgent one that has come into the queue since the last refresh
        self.came: Any = None
        self._changed = threading.Condition()
        self._heap: list[tuple[Any, str, Claim]] = []
        self.takers = 0
        self.wanted = 0
        """How many values those who wait for an item would take now."""
        self.asks = self.answered = 0
        """How many have asked whether there is any item, and how many of them know."""
        self.bytes = self.values = 0
        """Of those that are ready."""
        self.is_closed = False
        self._target = 0
        self._taken_s = now_s()
        self._given: dict[int, tuple[float, int]] = {}  # by thread: when, and how many values
        self.average_s: float | None = None
        """What a value takes those who work on it, in seconds; ``None`` before the first is
        done.
        """

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def first(self) -> Claim | None:
        """The first one, which stays."""
        with self._changed:
            return self._heap[0][2] if self._heap else None

    def put(self, claims: Iterable[Claim], *, before: Any = None) -> None:
        """These are ours now. ``before``: the order of what waits to be claimed, if
        anything does.
        """
        with self._changed:
            for claim in claims:
                heapq.heappush(self._heap, (self._key(claim.name), claim.name, claim))
                self.bytes += len(claim.data)
                self.values += claim.count
            if before is not None and self._heap and before < self._heap[0][0]:
                self._note(before)
            self._changed.notify_all()

    def ask(self) -> int:
        """Ask whether there is any item; :attr:`answered` is not below this number once it is known
        that, later than now, there was none.
        """
        with self._changed:
            self.asks += 1
            return self.asks

    def answer(self, asks: int) -> None:
        """So many have asked before the queue was found empty."""
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
        """The next ones, at most that many; none when ``timeout_s`` is over, when it is closed and
        used up, or when the answer to ``ask`` has come. ``is_batch``: at most that many values, or
        one znode; what has failed before is alone, because it may be what fails the others.
        ``wants``: as many are claimed for this caller.
        """
        thread = threading.get_ident()
        with self._changed:
            self._learn(self._given.pop(thread, None))
            if not self._heap or not self._may_begin():
                self._await(timeout_s, wants, ask)
            found: list[Claim] = []
            values = 0
            while self._heap and len(found) < most and self._may_begin():
                head = self._heap[0][2]
                if (
                    found
                    and is_batch
                    and (values + head.count > most or found[0].failures or head.failures)
                ):
                    break
                values += head.count
                found.append(heapq.heappop(self._heap)[2])
                self.bytes -= len(found[-1].data)
            self.values -= values
            self._since_refresh += len(found)
            self._taken_s = now_s()
            if values:
                self._given[thread] = (self._taken_s, values)
            if len(self._heap) <= self._target // 2:
                self._notify_wanted()
            return found

    def _await(self, timeout_s: float | None, wants: int, ask: int | None) -> None:
        self.takers += 1
        self.wanted += wants
        if not self._heap:
            self._notify_wanted()
        try:
            self._changed.wait_for(
                lambda: (
                    self.is_closed
                    or (bool(self._heap) and self._may_begin())
                    or (ask is not None and self.answered >= ask)
                ),
                timeout_s,
            )
        finally:
            self.takers -= 1
            self.wanted -= wants

    def has_come(self, name: str) -> None:
        """A name has come into the queue: nothing that goes after it is handed out before
        :meth:`refreshed`, but for the slack.

        What is being claimed at this moment may be put here later, so it is noted even if nothing
        is ready.
        """
        with self._changed:
            self._note(self._key(name))

    def _note(self, key: Any) -> None:
        if key is not None and (self.came is None or key < self.came):
            self.came = key

    def refreshed(self, came: Any, first: Any) -> None:
        """What had come up to ``came`` is known; ``first`` is the order of the first that waits,
        while nothing is being claimed.
        """
        with self._changed:
            if self.came == came:
                self.came = (
                    first
                    if first is not None and any(first < key for key, _, _ in self._heap)
                    else None
                )
                if not self._is_overtaken():
                    self._since_refresh = 0
                self._changed.notify_all()

    @property
    def is_overtaken(self) -> bool:
        """Whether something that goes before all that are ready has come."""
        with self._changed:
            return self._is_overtaken()

    def _is_overtaken(self) -> bool:
        return self.came is not None and bool(self._heap) and self.came < self._heap[0][0]

    def _may_begin(self) -> bool:
        return self._is_allowed() and not (
            self._is_overtaken() and self._since_refresh >= self._slack
        )

    def recheck(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def drain(self, is_wanted: Callable[[Claim], bool] = lambda claim: True) -> list[Claim]:
        """Take out all that are to be given back, or are not ours any more."""
        with self._changed:
            out = [claim for _, _, claim in self._heap if is_wanted(claim)]
            self._heap = [entry for entry in self._heap if not is_wanted(entry[2])]
            heapq.heapify(self._heap)
            self.bytes = sum(len(claim.data) for _, _, claim in self._heap)
            self.values = sum(claim.count for _, _, claim in self._heap)
            return out

    def close(self) -> None:
        """Nobody waits any more; what is there may still be taken."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def _learn(self, given: tuple[float, int] | None) -> None:
        if given is None:
            return
        since_s, values = given
        took_s = (now_s() - since_s) / values
        self.average_s = (
            took_s
            if self.average_s is None
            else self.average_s + _WEIGHT * (took_s - self.average_s)
        )

    def appetite(self) -> int:
        """How many values to have ready for workers that are busy."""
        if self.average_s is not None:
            self._target = min(
                self._most_ahead, int(AHEAD_S * self._workers / max(self.average_s, 1e-6))
            )
        return self._target

    def busy_s(self) -> float:
        """How long nobody has come for anything (seconds)."""
        return 0.0 if self.takers else now_s() - self._taken_s
