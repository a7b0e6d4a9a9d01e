"""A term for coroutines: its waits are awaited, and the event loop goes on meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from leaderq.base import clock
from leaderq.errors import Reason
from leaderq.term import Term
from leaderq.threads import TaskWaker
from leaderq.threads.event_loops import awaited

if TYPE_CHECKING:
    from leaderq.zookeeper.wire import Operation

_PAUSED_LOOK_S = 0.02
_UNREAD_LOOK_S = 0.001


@dataclass
class Units:
    """Counts the units that a career has begun with ``async with term.unit()`` and not ended. Only
    the career's event loop uses it.

    ``is_heard_out()`` tells whether everything that ZooKeeper has sent was read. ``none_left()`` is
    called when no unit is left.
    """

    is_heard_out: Callable[[], bool] = lambda: True
    none_left: Callable[[], object] = lambda: None
    in_hand: int = 0
    has_begun: bool = False

    def begin(self) -> None:
        self.has_begun = True
        self.in_hand += 1

    def end(self) -> None:
        self.in_hand -= 1
        if not self.in_hand:
            self.none_left()


class AsyncTerm:
    """A :class:`Term` whose waits are awaited, for an async career or the body of
    ``async with session.leadership(...)``. ``AsyncTerm(term)`` makes one from any term.

    ``number``, ``id``, ``career``, ``candidate`` and ``unclean`` are those of the term. All methods
    except :meth:`wait`, :meth:`write` and :meth:`unit` return at once; any thread may call them.
    """

    def __init__(self, term: Term, *, units: Units | None = None) -> None:
        self.number = term.number
        self.id = term.id
        self.career = term.career
        self.candidate = term.candidate
        self.unclean = term.unclean
        self._term = term
        self._units = Units() if units is None else units

    @property
    def deadline(self) -> float:
        """Until when the leadership may be trusted without news from ZooKeeper, by
        :func:`leaderq.base.clock.now_s`.
        """
        return self._term.deadline

    def remaining_s(self) -> float:
        """Seconds until :attr:`deadline`; 0.0 if the term is over."""
        return self._term.remaining_s()

    @property
    def is_ending(self) -> bool:
        """Whether the term has begun to end, or is over."""
        return self._term.ending.is_set()

    @property
    def paused(self) -> bool:
        """Whether no new unit may begin: ZooKeeper is silent, or an operator paused the career."""
        return self._term.paused

    @property
    def reason(self) -> Reason | None:
        """Why the term is ending or over; ``None`` before that."""
        return self._term.reason

    def check(self) -> None:
        """Return if this leadership may be trusted now; raise :class:`Deposed` once it may not."""
        self._term.check()

    def resign(self, *, stand_again_after_s: float | None = None) -> None:
        """Do what :meth:`Term.resign` does: the unit in hand is finished, ``hand_over`` follows."""
        self._term.resign(stand_again_after_s=stand_again_after_s)

    def finish(self) -> None:
        """Do what :meth:`Term.finish` does: end the term, and do not stand again."""
        self._term.finish()

    async def wait(self, seconds: float | None = None) -> bool:
        """Sleep for ``seconds``, or until the term begins to end; return whether the term is still
        on.

        ``None`` sleeps until the term begins to end.

        :raises ConfigurationError: ``seconds`` is not a number (NaN).
        """
        # For ever as far as a test is concerned that lets no time pass, which adds it up.
        seconds = self._term._passing_s(3e9 if seconds is None else seconds)
        end_s = clock.now_s() + seconds
        waker = TaskWaker()
        forget = self._term._call_at_end(waker.wake)
        try:
            while (left_s := self._term._left_s(end_s)) > 0:
                await waker.wait(left_s)
        finally:
            forget()
        await _others_turn()  # even if nothing was waited for
        return self._term._is_on()

    async def write(self, ops: Iterable[Operation]) -> list[Any]:
        """Carry out ZooKeeper operations in one multi that fails if leadership is lost.

        Returns and raises what :meth:`Term.write` does. A task that is cancelled meanwhile does not
        learn the outcome; in a career the unit ends only when the outcome is known.
        """
        ops = tuple(ops)
        self.check()
        return await awaited(lambda: self._term.write(ops), "leaderq-write")

    @asynccontextmanager
    async def unit(self) -> AsyncIterator[None]:
        """Mark one unit of work: the ``async with`` block. For an ``execute`` that does several
        units, one after another or side by side.

        The block begins while the term is on and not paused. During a pause this waits; once the
        term has begun to end, the task is cancelled instead. At the end of the term a unit in hand
        is finished within the budget (in an ``atomic`` career it is cancelled); then what is left
        of ``execute`` is cancelled, because it only waits.
        """
        while self.paused or not self._units.is_heard_out():
            if not await self.wait(_PAUSED_LOOK_S if self.paused else _UNREAD_LOOK_S):
                break
        if not self._term._is_on():
            raise cancelled(self.reason)
        self._units.begin()
        try:
            yield
        finally:
            self._units.end()

    def __repr__(self) -> str:
        return f"<Async{repr(self._term)[1:]}"


def cancelled(reason: Reason | None) -> BaseException:
    """The exception to raise in coroutines because the term ends."""
    from asyncio import CancelledError

    return CancelledError(ending(reason))


def ending(reason: Reason | None) -> str:
    """The message for a coroutine that is cancelled because the term ends."""
    return "the term ends" if reason is None else f"the term ends: {reason.sentence}"


async def _others_turn() -> None:
    import asyncio

    await asyncio.sleep(0)
