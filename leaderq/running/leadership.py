"""Leadership inside a user's own program: a ``with`` block, or a loop over terms.

Users come here through ``session.leadership`` and ``session.terms``, which say what is promised.

The term is authoritative, as everywhere. The body of the block is the one unit of work of its term:
it begins only in a term that is on and not paused, and the term is released when the program has
left the body. Nothing can stop a body that goes on, because there is no guardian.

On each failure: if the term ends while the body runs, operators see *hand-over* from then on. If
the body raises, the term has *failed*, except for an interrupt, an exit or a cancellation. If
ZooKeeper is unreachable when the body is left, the release waits for it some seconds, and then goes
on in the background. If the owner closes the session, ``SessionClosed`` is raised. In a forked
child nothing is released, because the term belongs to the parent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from leaderq.async_term import AsyncTerm
from leaderq.base import clock, host
from leaderq.base.arguments import at_least, instance, require, timeout
from leaderq.config import Settings, new_candidate_id
from leaderq.election import Candidate, EndDetails
from leaderq.errors import Deposed, NotElected, WouldDeadlock, told
from leaderq.events import CoolingOff, EventBus, Stage, StageBegan
from leaderq.observability import tracing
from leaderq.running.installed import software_of
from leaderq.running.supervision import CoolOff, after_term
from leaderq.term import OpenTerm, Reason, Term
from leaderq.threads import Retry, primitives
from leaderq.threads.event_loops import awaited, runs_event_loop, started
from leaderq.zookeeper import Session

_PAUSED_LOOK_S = 0.02
_RELEASE_S = 5.0
_LEAVE_S = 1.0
_THREAD = "leaderq-leadership"


class Leadership:
    """One block that leads; see ``Session.leadership``. It may be entered again after it
    was left.
    """

    def __init__(
        self,
        session: Session,
        career: str,
        *,
        id: str | None,
        root: str,
        timeout_s: float | None,
        events: EventBus | None,
    ) -> None:
        require(timeout("timeout_s", timeout_s))
        settings = _settings(career, id, root)
        self._make: Callable[[], _Standing] = lambda: _Standing(session, settings, events)
        self._timeout_s = timeout_s
        self._entered = primitives.Lock()
        self._standing: _Standing | None = None

    def __enter__(self) -> Term:
        _refuse_event_loop("with session.leadership(...)", "async with session.leadership(...)")
        standing = self._begin()
        try:
            return standing.first_term(self._timeout_s)
        except BaseException:
            self._end()
            raise

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self._end().leave(error)

    async def __aenter__(self) -> AsyncTerm:
        standing = self._begin()
        try:
            term = await awaited(
                lambda: standing.first_term(self._timeout_s),
                _THREAD,
                give_up=standing.give_up,
                # won in the moment in which the task was cancelled
                put_back=lambda _: started(standing.leave, _THREAD),
            )
        except BaseException:
            self._end()  # the block is left, although its candidate may still leave the line
            raise
        return AsyncTerm(term)

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        standing = self._end()
        await awaited(lambda: standing.leave(error), _THREAD)

    def _begin(self) -> _Standing:
        if not self._entered.acquire(blocking=False):
            raise WouldDeadlock("this leadership block is in use; make one for each thread")
        try:
            self._standing = self._make()
            self._standing.take_place()
        except BaseException:
            self._entered.release()
            raise
        return self._standing

    def _end(self) -> _Standing:
        standing, self._standing = self._standing, None
        assert standing is not None  # __exit__ follows __enter__
        standing.give_place()
        self._entered.release()
        return standing


def terms(
    session: Session,
    career: str,
    *,
    id: str | None,
    root: str,
    cool_off_s: float,
    events: EventBus | None,
) -> Generator[Term, None, None]:
    """Return a generator of one term after another; see ``Session.terms``."""
    require(at_least("cool_off_s", cool_off_s, 0, "seconds"))
    yield_s = max(30.0, cool_off_s)
    settings = _settings(career, id, root, cool_off_s=cool_off_s, yield_s=yield_s)
    return _terms(_Standing(session, settings, events))


def _terms(standing: _Standing) -> Generator[Term, None, None]:
    _refuse_event_loop("session.terms(...)", "async with session.leadership(...), in a loop")
    standing.take_place()
    try:
        while True:
            term = standing.next_term()
            began_s = clock.now_s()
            yield term
            term.resign()  # if it is still on
            pause_s = 0.0 if term.is_finished else standing.cool_off(term, clock.now_s() - began_s)
            standing.release(cool_off_s=pause_s)
            if term.is_finished:
                return
            standing.pause(pause_s)
    finally:
        standing.give_place()
        standing.leave()


class _Standing:
    """The candidate of one block or loop, from its first term to its last."""

    _places: ClassVar[WeakKeyDictionary[object, set[tuple[str, str, str]]]] = WeakKeyDictionary()
    """For which careers a thread, or a task of an event loop, stands in blocks: a second block
    there would wait for itself. They are themselves the keys: numbers of those that ended come
    again.
    """

    def __init__(self, session: Session, settings: Settings, events: EventBus | None) -> None:
        self._session = session
        self._settings = settings
        self._career, self._id = str(settings.career), settings.id
        self._events = EventBus() if events is None else events
        self._candidate = Candidate(
            session,
            self._career,
            id=self._id,
            root=settings.root,
            events=self._events,
            ending=self._ending,
            software=software_of(),
        )
        self._record = CoolOff()
        self._term: OpenTerm | None = None
        self._given_up = primitives.Event()
        self._pid = host.pid()
        self._place = session.address, settings.root, self._career
        self._around: set[tuple[str, str, str]] = set()
        self._forget: Callable[[], None] = lambda: None

    def take_place(self) -> None:
        """Stand for election.

        Raises :class:`WouldDeadlock` if this thread or task already stands for the same career.
        """
        self._session.check_open()
        around = self._places.setdefault(_who(), set())
        if self._place in around:
            what = f"this thread stands for {self._career!r} already, in a block around this one"
            raise WouldDeadlock(f"{what}; it would wait for itself")
        around.add(self._place)
        self._around = around
        self._forget = tracing.follow(self._events, self._career, self._id)

    def give_place(self) -> None:
        """Note that the block is left."""
        self._around.discard(self._place)

    def first_term(self, timeout_s: float | None) -> OpenTerm:
        """Return :meth:`next_term`; if it raises, the candidate has left the line."""
        try:
            return self.next_term(timeout_s)
        except BaseException:
            self.close()
            raise

    def leave(self, error: BaseException | None = None) -> None:
        """Release the present term, and leave the line."""
        self.release(error)
        self.close()

    def next_term(self, timeout_s: float | None = None) -> OpenTerm:
        """Wait for a term that is on and not paused, announce its execution, and return it."""
        until_s = float("inf") if timeout_s is None else clock.now_s() + timeout_s
        while True:
            self._candidate.stand()
            self._check(until_s, timeout_s)
            left_s = None if timeout_s is None else max(0.0, until_s - clock.now_s())
            self._term = self._candidate.await_term(left_s)
            if self._term is not None and self._is_on(self._term, until_s):
                self._say(self._term, Stage.EXECUTION)
                return self._term
            self.release()

    def release(self, error: BaseException | None = None, cool_off_s: float = 0.0) -> None:
        """Release the present term, if there is one, because no code works on it any more."""
        term, self._term = self._term, None
        if term is not None and host.pid() == self._pid:
            failed = isinstance(error, Exception) and not isinstance(error, Deposed)
            reason = Reason.FAILED if failed else Reason.WITHDRAWN
            details = EndDetails(told(error) if error is not None and failed else None, cool_off_s)
            self._candidate.conclude(term, reason, timeout_s=_RELEASE_S, details=details)

    def cool_off(self, term: OpenTerm, lasted_s: float) -> float:
        """The seconds to wait before the next term, by the rule for all candidates."""
        settings = self._settings
        self._record = after_term(
            self._record,
            term.reason or Reason.WITHDRAWN,
            lasted_s,
            Retry(
                attempts=settings.max_failures, first_s=settings.cool_off_s, most_s=settings.yield_s
            ),
            stand_again_after_s=term.stand_again_after_s,
        )
        record = self._record
        if record.why:
            event = CoolingOff(self._career, self._id, record.seconds, record.failures, record.why)
            self._events.publish(event)
        return record.seconds

    def pause(self, seconds: float) -> None:
        """Let ``seconds`` pass, during which this candidate does not stand; less if the session is
        closed.
        """
        self._candidate.await_term(seconds)

    def give_up(self) -> None:
        """Make :meth:`next_term` raise on the thread that waits in it."""
        self._given_up.set()
        self._candidate.wake()

    def close(self) -> None:
        if host.pid() == self._pid:
            self._candidate.close(timeout_s=_LEAVE_S)
        self._forget()

    def _check(self, until_s: float, timeout_s: float | None) -> None:
        self._session.check_open()
        if self._given_up.is_set():
            raise asyncio.CancelledError
        if timeout_s is not None and clock.now_s() >= until_s:
            raise NotElected(self._career, self._id, waited_s=timeout_s)

    def _is_on(self, term: OpenTerm, until_s: float) -> bool:
        """Wait for the end of a pause, and return whether the body may begin: the term is on and
        not paused.
        """
        while term.paused and clock.now_s() < until_s and not self._given_up.is_set():
            if not term.wait(_PAUSED_LOOK_S):
                break
        return term.wait(0) and not term.paused and not self._given_up.is_set()

    def _say(self, term: OpenTerm, stage: Stage) -> None:
        self._candidate.announce(term, stage)
        self._events.publish(StageBegan(self._career, self._id, term.number, stage))

    def _ending(self, term: OpenTerm) -> None:
        if term is self._term:
            self._say(term, Stage.HANDOVER)


def _settings(career: str, id: str | None, root: str, **more: Any) -> Settings:
    require(instance("career", career, str))  # no class gives it a name
    return Settings(career=career, root=root, id=new_candidate_id() if id is None else id, **more)


def _who() -> object:
    """The task of an event loop that calls; elsewhere, the thread."""
    try:
        return asyncio.current_task() or primitives.current_thread()
    except RuntimeError:
        return primitives.current_thread()


def _refuse_event_loop(what: str, instead: str) -> None:
    if runs_event_loop():
        raise WouldDeadlock(f"{what} would stop this event loop while it waits; write {instead}")
