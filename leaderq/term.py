"""A term: one uninterrupted period of leadership, as a value with an end.

ZooKeeper decides who wins a term; the leader's own clock decides when the term may no longer be
believed. The candidate that won keeps the :class:`OpenTerm`. The career gets the same object as a
:class:`Term`, and cannot prolong it.

States, in this order; a term never goes back:

* **on**: work may be taken; while it is *paused*, no new unit begins;
* **ending**: ``ending`` is set (by an operator, a stop, the career's own ``resign``), the unit in
  hand is finished (or abandoned) and ``handOver`` follows. After a planned end the leadership is
  still held: ``check()`` and ``write()`` pass;
* **over**: leadership is gone (deposed) or released. ``check()`` and ``write()`` raise
  :class:`Deposed`. ``check()`` compares the deadline with the clock itself, so a process that was
  frozen notices at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any

from leaderq.base import clock
from leaderq.base.arguments import is_number, require, wanted
from leaderq.errors import Deposed, Reason, WouldDeadlock
from leaderq.threads import primitives
from leaderq.threads.event_loops import runs_event_loop

if TYPE_CHECKING:
    from leaderq.zookeeper.wire import Operation

__all__ = ["EndingTerm", "FencedWrite", "OpenTerm", "Reason", "Term"]

FencedWrite = Callable[["Term", Sequence["Operation"]], list[Any]]


class Term:
    """What a career sees of its leadership.

    ``number`` is the fencing token. It rises from term to term, without gaps unless an operator
    makes one, and never falls; store it beside the data, and refuse lower numbers
    (:mod:`leaderq.fencing`). ``id`` is unique for ever. ``unclean`` says that the previous term
    ended without a hand-over: its last unit of work may be half done. ``ending`` is a
    :class:`threading.Event`, set as soon as the term should wind up.

    Guarantees: once :meth:`check` or :meth:`write` has raised :class:`Deposed`, they always raise
    it; no write passes after another leader was inaugurated. Not guaranteed: that leadership still
    stands when :meth:`check` has *returned*; only a fenced write, or a resource that compares
    ``number``, closes that gap.
    """

    def __init__(
        self,
        *,
        number: int,
        id: str,
        career: str,
        candidate: str,
        deadline: float,
        write: FencedWrite,
        unclean: bool = False,
        tell_end: Callable[[Term, Reason], None] = lambda _term, _reason: None,
    ) -> None:
        self.number = number
        self.id = id
        self.unclean = unclean
        self.career = career
        self.candidate = candidate
        self.ending = primitives.Event()
        self._deadline = deadline
        self._fenced_write = write
        self._tell_end = tell_end
        self._paused = False
        self._reason: Reason | None = None
        self._over = False
        self._stand_again_after_s: float | None = None
        self._finished = False
        self._at_end: tuple[Callable[[], object], ...] = ()
        self._tell_deadline: Callable[[], object] = lambda: None
        self._lock = primitives.Lock()

    @property
    def deadline(self) -> float:
        """Until when the leadership may be trusted without news from ZooKeeper, by
        :func:`leaderq.base.clock.now_s`.
        """
        return self._deadline

    def remaining_s(self) -> float:
        """Seconds until :attr:`deadline`; 0.0 if the term is over."""
        return 0.0 if self._over else max(0.0, self._deadline - clock.now_s())

    @property
    def paused(self) -> bool:
        """Whether no new unit may begin: ZooKeeper is silent, or an operator paused the career."""
        return self._paused

    @property
    def reason(self) -> Reason | None:
        """Why the term is ending or over; ``None`` before that."""
        return self._reason

    def check(self) -> None:
        """Return if this leadership may be trusted now; raise :class:`Deposed` once it may not.

        Cheap enough for every record: no lock, no I/O.
        """
        if not self._over and clock.now_s() < self._deadline:
            return
        self._lose(Reason.LEASE)
        raise Deposed(term=self.number, reason=self._reason or Reason.LEASE)

    def write(self, ops: Iterable[Operation]) -> list[Any]:
        """Carry out ZooKeeper operations in one multi that fails if leadership is lost.

        ``ops`` are :class:`~leaderq.zookeeper.Create`, ``SetData``, ``Delete`` and ``Check``
        values; returns one result for each. Raises :class:`Deposed` if the leadership is lost, else
        the :class:`~leaderq.errors.ZooKeeperError` of the first operation that failed. While
        ZooKeeper is silent it waits, at most until the lease ends. Not guaranteed: the outcome when
        :class:`~leaderq.errors.ConnectionLost` is raised; read back before repeating.
        """
        self.check()
        return self._fenced_write(self, tuple(ops))

    def wait(self, seconds: float) -> bool:
        """Sleep for ``seconds``, or until the term begins to end; return whether the term is still
        on.

        :raises ConfigurationError: ``seconds`` is not a number, or NaN.
        :raises WouldDeadlock: an event loop runs on this thread, and would stop.
        """
        seconds = self._passing_s(seconds)
        if seconds > 0 and runs_event_loop():
            what = "term.wait would stop this event loop while it waits"
            raise WouldDeadlock(
                f"{what}; write 'await term.wait(...)' with the AsyncTerm that an AsyncLeaderCareer"
                " and 'async with session.leadership(...)' are given, or make one: AsyncTerm(term)"
            )
        end_s = clock.now_s() + seconds
        while (left_s := self._left_s(end_s)) > 0:
            self.ending.wait(left_s)
        return self._is_on()

    def _passing_s(self, seconds: float) -> float:
        """How many seconds a wait of ``seconds`` really takes; tests override this and let no time
        pass.
        """
        # A NaN is never reached and never ahead: a loop around this wait would not wait at all.
        given: Any = seconds
        require(wanted("seconds", given, isinstance(given, Real) and given == given, "a number"))
        return seconds

    def _left_s(self, end_s: float) -> float:
        """How many seconds to sleep now, in a wait that lasts until ``end_s``."""
        # Never past the deadline: a candidate thread starved by the work would not wake us.
        return 0.0 if self.ending.is_set() else min(end_s, self._deadline) - clock.now_s()

    def _is_on(self) -> bool:
        """Whether the term is on, also by the clock."""
        if clock.now_s() >= self._deadline:
            self._lose(Reason.LEASE)
        return not self.ending.is_set()

    def _call_at_end(self, call: Callable[[], object]) -> Callable[[], None]:
        """Call ``call()`` when the term begins to end, on the thread that ends it, perhaps more
        than once. Return a function that takes this back.
        """
        with self._lock:
            self._at_end = (*self._at_end, call)
        if self.ending.is_set():
            call()

        def forget() -> None:
            with self._lock:
                self._at_end = tuple(one for one in self._at_end if one is not call)

        return forget

    def _begin_end(self, is_news: bool) -> None:
        self.ending.set()  # in any case: who has made it news may not have come so far
        for call in self._at_end if is_news else ():
            call()

    def resign(self, *, stand_again_after_s: float | None = None) -> None:
        """End the term as planned: the unit in hand is finished, ``handOver`` follows.

        The process stands again after ``stand_again_after_s`` seconds, by default after
        ``cool_off_s``; another candidate leads as soon as ``handOver`` has returned. Returns at
        once; any thread may call it. If the term is ending, this changes nothing.
        """
        seconds = stand_again_after_s
        if not (seconds is None or (is_number(seconds) and 0 <= seconds < float("inf"))):
            raise ValueError(f"stand_again_after_s={seconds!r} is not a number of seconds")
        self._wind_up_as(Reason.RESIGNED, stand_again_after_s)

    def finish(self) -> None:
        """End the term as :meth:`resign` does, and do not stand again, however the term ends.
        ``leaderq run`` then ends with exit code 0 (1 if the career fails after this call).

        Not guaranteed: that the work is not done again. Other candidates are elected next; record
        what is done beside the data, and let ``inaugurate`` finish if there is nothing to do.
        """
        self._finished = True
        self._wind_up_as(Reason.FINISHED)

    def _wind_up_as(self, reason: Reason, stand_again_after_s: float | None = None) -> None:
        with self._lock:
            if self._reason is not None or self._over:
                return
            self._reason, self._stand_again_after_s = reason, stand_again_after_s
        self._begin_end(True)
        self._tell_end(self, reason)

    def _lose(self, reason: Reason) -> None:
        with self._lock:
            is_news = not self._over
            self._reason = self._reason if self._over and self._reason else reason
            self._over = True
        self._begin_end(is_news)

    def __repr__(self) -> str:
        state = "ending" if self.ending.is_set() else "paused" if self._paused else "on"
        state = "over" if self._over else state
        return f"<Term {self.number} of {self.career!r} by {self.candidate!r}, {state}>"


class EndingTerm(Term):
    """The term that ``handOver`` receives, whose :attr:`reason` is known. Use it in annotations."""

    @property
    def reason(self) -> Reason:
        """Why the term is ending or over."""
        return self._reason or Reason.WITHDRAWN


class OpenTerm(Term):
    """A term for the candidate that has won it, which alone may prolong, pause and end it.
    Thread-safe.
    """

    @property
    def stand_again_after_s(self) -> float | None:
        """The seconds that the career gave when it resigned; ``None`` if it gave none."""
        return self._stand_again_after_s

    @property
    def is_finished(self) -> bool:
        """Whether the career has said that there is nothing left to do."""
        return self._finished

    def tell_changes(self, call: Callable[[], object]) -> None:
        """Call ``call()`` after each change of the deadline, and when the term begins to end or is
        over, on the thread that changes it. ``call`` must not block. Only one is told.
        """
        self._tell_deadline = call
        self._call_at_end(call)

    def prolong(self, deadline: float) -> None:
        """Trust the leadership until ``deadline``. An earlier deadline is ignored, and any once the
        term is over.
        """
        with self._lock:
            # A passed deadline is final: somebody may have acted on it (facts.md, bug 9).
            if not self._over and clock.now_s() < self._deadline:
                self._deadline = max(self._deadline, deadline)
        self._tell_deadline()

    def shorten(self, deadline: float) -> None:
        """Trust the leadership no longer than until ``deadline``; a later deadline is ignored."""
        with self._lock:
            self._deadline = min(self._deadline, deadline)
        self._tell_deadline()

    def pause(self, paused: bool) -> None:
        """Forbid the next unit of work, or allow it again."""
        self._paused = paused

    def wind_up(self, reason: Reason) -> None:
        """Begin the end of the term; if the reason deposes, the term is over at once."""
        if reason.deposes:
            self._lose(reason)
            return
        with self._lock:
            is_news = self._reason is None
            self._reason = self._reason or reason
        self._begin_end(is_news)

    def close(self) -> None:
        """End the term for good, because the career's code has returned."""
        self._lose(self._reason or Reason.WITHDRAWN)
