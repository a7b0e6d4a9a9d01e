"""The argument with which the method of a schedule is called."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from leaderq.errors import LeaderqError

if TYPE_CHECKING:
    from leaderq.async_term import AsyncTerm
    from leaderq.term import Term
    from leaderq.zookeeper.wire import Operation


@dataclass(frozen=True)
class Tick:
    """A tick of the schedule ``name``, in its ``term``.

    ``at`` is the time that the tick stands for, in the zone of the schedule, however late it runs:
    make the report of the day for ``at``. ``missed``: how many missed ticks before it this tick
    replaces (counted up to 1,000). ``attempt``: 1 at first; higher if the tick was begun before and
    is not known to have ended. ``is_requested``: ``leaderq schedule run-now`` asked for it; then
    ``at`` is about the time of the request, and later than that of the request before.
    """

    name: str
    at: datetime
    term: Term
    missed: int = 0
    attempt: int = 1
    is_requested: bool = False
    _complete: Callable[[Sequence[Operation]], list[Any]] = field(
        default=lambda _ops: [], repr=False, compare=False
    )

    def write(self, ops: Iterable[Operation]) -> list[Any]:
        """Carry out ZooKeeper operations in the multi that records the tick as done; once a tick.

        Guarantees: both happen or neither; so ``ops`` take effect exactly once for each tick.
        Returns and raises what :meth:`leaderq.Term.write` does, except that the outcome is always
        known. Not guaranteed: anything done besides ``ops``.
        """
        return self._complete(tuple(ops))


@dataclass(frozen=True)
class AsyncTick(Tick):
    """The argument of an ``async def`` method of a schedule: a :class:`Tick` whose ``term`` is an
    ``AsyncTerm``, and whose :meth:`write` is awaited.
    """

    term: AsyncTerm  # type: ignore[assignment]

    async def write(self, ops: Iterable[Operation]) -> list[Any]:  # type: ignore[override]
        """As :meth:`Tick.write`."""
        from leaderq.threads.event_loops import awaited

        held = tuple(ops)
        return await awaited(lambda: self._complete(held), "leaderq-write")


def recorded(name: str) -> LeaderqError:
    """The error for a second :meth:`Tick.write`."""
    return LeaderqError(f"the tick of {name!r} is recorded as done; call tick.write once")
