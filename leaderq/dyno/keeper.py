"""Extends the leases of deliveries that are being worked on, and warns before they end for good."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from leaderq.clock import now_s
from leaderq.dyno.delivery import Delivery, StaleLease
from leaderq.errors import LeaderqError
from leaderq.threads import Service

log = logging.getLogger(__name__)
Ending = Callable[[Delivery], object]
Known = dict[Delivery, LeaderqError | None]
"""What became of each."""
Wanted = Sequence[tuple[Delivery, float]]
"""What is to be extended, by so many seconds from now."""
_LEAST_S = 0.01


@dataclass(slots=True)
class _Kept:
    until_s: float | None
    ending: Ending | None
    ending_s: float


class LeaseKeeper:
    """Which deliveries are kept. ``extend_all`` extends those whose locks are held, all together;
    ``wake`` has :meth:`extend_due` called soon."""

    def __init__(self, extend_all: Callable[[Wanted], Known], wake: Callable[[], object]) -> None:
        self._extend_all, self._wake = extend_all, wake
        self._kept: dict[Delivery, _Kept] = {}

    def keep(
        self,
        deliveries: Iterable[Delivery],
        most_s: float | None,
        ending: Ending | None,
        ending_s: float,
    ) -> None:
        until_s = None if most_s is None else now_s() + most_s
        for one in deliveries:
            if not one.is_settled:
                self._kept[one] = _Kept(until_s, ending, ending_s)
        self._wake()

    def let_go(self, deliveries: Iterable[Delivery]) -> None:
        for one in deliveries:
            self._kept.pop(one, None)

    def extend_due(self, now_ms: int) -> float:
        """Extend what has to be, and warn; returns the seconds until something has to be again."""
        soonest_s = float("inf")
        wanted: list[tuple[Delivery, float]] = []
        for one, kept in list(self._kept.items()):
            left_s = (one.until_ms - now_ms) / 1000
            most_s = float("inf") if kept.until_s is None else kept.until_s - now_s()
            if most_s > left_s + _LEAST_S:
                wait_s = left_s - one.lease_s / 3
                if wait_s <= 0:
                    wanted.append((one, min(one.lease_s, most_s)))
                    wait_s = one.lease_s / 3
            elif kept.ending is not None and left_s > kept.ending_s:
                wait_s = left_s - kept.ending_s
            else:
                self._end(one, kept)
                continue
            soonest_s = min(soonest_s, wait_s)
        self._extend(wanted)
        return max(_LEAST_S, soonest_s)

    def _extend(self, wanted: Wanted) -> None:
        with ExitStack() as locks:
            free = []
            for one, lease_s in wanted:
                if one.lock.acquire(blocking=False):  # else it is being settled
                    locks.callback(one.lock.release)
                    if one in self._kept:
                        free.append((one, lease_s))
            for one, error in (self._extend_all(free) if free else {}).items():
                if isinstance(error, StaleLease):
                    log.warning("lease lost message=%s error=%s", one.id, error)
                elif error is not None:
                    log.debug("lease not extended, trying again message=%s error=%s", one.id, error)

    def _end(self, one: Delivery, kept: _Kept) -> None:
        self._kept.pop(one, None)
        ending = kept.ending
        if ending is not None and not one.is_settled:
            # On a thread of its own: whatever it does, the other leases are kept.
            Service("leaderq-dyno-ending", lambda _: ending(one)).start()
