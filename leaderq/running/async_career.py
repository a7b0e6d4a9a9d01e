"""The base classes of careers written as coroutines; the runner sees a synchronous career."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from leaderq.async_term import AsyncTerm, Units
from leaderq.base import clock
from leaderq.base.arguments import is_number, require_finished, wanted
from leaderq.career import Career, career_name
from leaderq.events import Stage
from leaderq.schedules.definition import only_waiting
from leaderq.term import Reason, Term
from leaderq.threads import Waker

if TYPE_CHECKING:
    from leaderq.running.event_loop import EventLoop, Scope


class AsyncLeaderCareer(Career):
    """A :class:`LeaderCareer` whose methods are coroutine functions: subclass it and write
    ``async def execute(self, term)``, where ``term`` is an :class:`AsyncTerm`.

    All methods run on one event loop of asyncio, on a thread of leaderq. The loop lives as long as
    the process stands for election, so what ``prepare`` opens stays usable between terms.
    :meth:`healthy` stays a plain function, and is called on a thread of its own. The attributes are
    those of a :class:`LeaderCareer`, and

    * ``atomic``: ``False`` (default): at the end of the term the unit in hand is finished within
      ``handover_budget_s``; it is cancelled when a second or a quarter of that time is left,
      whichever is less. ``True``: it is cancelled at once, unless it was the unit that resigned.
      The unit gets ``asyncio.CancelledError``, with the reason.
    * ``blocked_after_s``: a loop that answers nothing for so many seconds, because a coroutine
      blocks, is named in the log with the stack of its thread.

    *Guarantees:* those of a :class:`LeaderCareer`. The loop does not run what keeps up the lease,
    nor what kills overdue work. So a blocked loop costs no term before its budget is over, and its
    process ends before the next leader begins. A call of ``execute`` ends with all that it has
    begun: tasks left behind are cancelled and named, calls in threads (``asyncio.to_thread``) are
    waited for. The same holds for what ``inaugurate`` has begun when ``hand_over`` returns, and for
    ``prepare`` after ``retire``. *Not guaranteed:* anything about threads that are started in other
    ways, and about callbacks (``loop.call_later``) that are left behind.
    """

    blocked_after_s: ClassVar[float] = 1.0

    _is_async = True
    # Of the class, so that a subclass with an __init__ of its own need not call ours.
    _loop: EventLoop | None = None
    _held: _HeldTerm | None = None
    _scope: Scope | None = None  # what is begun outside of terms

    async def prepare(self) -> None:
        """Open resources that would be slow to open after winning; called before standing for
        election.

        Called once in the life of the process. An exception ends the process with an error.
        """

    async def inaugurate(self, term: AsyncTerm) -> None:
        """Do nothing; override it to load what the work needs."""

    @abstractmethod
    async def execute(self, term: AsyncTerm) -> None:
        """Do one unit of work; called again and again. ``await term.wait(s)`` if there is nothing
        to do. Or stay for the whole term, and mark each unit: ``async with term.unit()``.
        """

    async def handOver(self, term: AsyncTerm) -> None:  # noqa: N802
        """Do nothing; override it to release what :meth:`inaugurate` took."""
        await self.hand_over(term)

    async def hand_over(self, term: AsyncTerm) -> None:
        """Do what :meth:`handOver` does: override one of the two."""

    async def retire(self) -> None:
        """Close what :meth:`prepare` opened; called once, when the process stops standing."""

    @classmethod
    def _wrong_values(cls) -> Iterator[str | None]:
        yield from super()._wrong_values()
        look_s = cls.blocked_after_s
        remedy = f"seconds above 0 in {cls.__qualname__}"
        yield wanted("blocked_after_s", look_s, is_number(look_s) and look_s > 0, remedy)

    def _perform(
        self,
        code: Callable[..., Any],
        *given: Any,
        stage: Stage | None = None,
        until_s: Callable[[], float] = lambda: math.inf,
        is_heard_out: Callable[[], bool] = lambda: True,
    ) -> None:
        from leaderq.running.event_loop import Scope

        loop, name = self._running_loop(), getattr(code, "__name__", "a method of the career")
        term = next((one for one in given if isinstance(one, Term)), None)
        if term is None:
            assert self._scope is not None  # made with the loop
            require_finished(loop.run(partial(code, *given), self._scope), name)
            return
        if self._held is None or self._held.term is not term:
            self._held = _HeldTerm(term, is_heard_out)
        held, is_unit, waker = self._held, stage is Stage.EXECUTION, Waker()
        held.units.none_left = waker.wake
        returned = loop.run(
            partial(code, *(held.async_term if one is term else one for one in given)),
            Scope(f"a unit of term {term.number}") if is_unit else held.scope,
            ends_scope=stage is not Stage.INAUGURATION,
            term=term,
            cancel_in_s=None
            if stage is Stage.HANDOVER
            else lambda time: held.cancel_in_s(time, until_s(), atomic=self.atomic and is_unit),
            waker=waker,
        )
        require_finished(returned, name)

    def _running_loop(self) -> EventLoop:
        if self._loop is None:
            from leaderq.running.event_loop import EventLoop, Scope

            name = career_name(self)
            self._loop = EventLoop(name, blocked_after_s=self.blocked_after_s)
            self._scope = Scope(f"career {name}")
        return self._loop

    def _close(self) -> None:
        if self._loop is not None and self._scope is not None:
            self._loop.close(self._scope)
            self._loop = None


class AsyncScheduledCareer(AsyncLeaderCareer):
    """An :class:`AsyncLeaderCareer` without units of its own: write ``async def`` methods with
    ``@schedule``, which take an :class:`~leaderq.schedules.AsyncTick`, and no ``execute``.
    """

    @only_waiting
    async def execute(self, term: AsyncTerm) -> None:
        """Wait until the runner has something to do, between two ticks."""
        await term.wait()


class _HeldTerm:
    """A term, and the tasks and calls that were begun in it."""

    def __init__(self, term: Term, is_heard_out: Callable[[], bool]) -> None:
        from leaderq.running.event_loop import Scope

        self.term = term
        self.units = Units(is_heard_out)
        self.async_term = AsyncTerm(term, units=self.units)
        self.scope = Scope(f"term {term.number}")
        self._ended_s: float | None = None

    def cancel_in_s(self, time: int, until_s: float, *, atomic: bool) -> float:
        """In how many seconds to cancel the unit in hand, because the term is ending."""
        now_s = clock.now_s()
        self._ended_s = now_s if self._ended_s is None else self._ended_s
        return seconds_to_cancel(
            self.term.reason or Reason.WITHDRAWN,
            time,
            atomic=atomic,
            idle=self.units.has_begun and not self.units.in_hand,
            left_s=until_s - now_s,
            since_s=now_s - self._ended_s,
        )


def seconds_to_cancel(
    reason: Reason, time: int, *, atomic: bool, idle: bool, left_s: float, since_s: float
) -> float:
    """Return in how many seconds to cancel the unit in hand of a term that is ending; ``time`` is 1
    for the first cancellation, 2 for the second (pure).

    ``idle``: the code marks its units, and none is in hand. ``left_s``: seconds until the budget of
    the hand-over is over; ``since_s``: seconds since the term began to end.

    Atomic or idle code is cancelled at once, unless it ended the term itself. All code is cancelled
    once when the time is nearly up: after a planned end when a second or a quarter of the time is
    left, whichever is less; after a lost lease when three quarters are left, because the guardian
    asks at that time. It is not cancelled more often, because that would also cancel its clean-up.
    """
    at_once = (atomic or idle) and reason not in (Reason.RESIGNED, Reason.FINISHED)
    if at_once and time == 1:
        return 0.0
    if left_s == math.inf or time > 1 + at_once:
        return math.inf  # the hand-over is not timed yet, or nothing is left to do
    whole_s = left_s + since_s
    kept_s = whole_s * 3 / 4 if reason.deposes else min(1.0, whole_s / 4)
    return left_s - kept_s
