"""One process standing for election: the thread that drives the decision table.

Who is authoritative: :mod:`leaderq.election.decision` decides; ZooKeeper says who is first; the clock alone ends a lease. This
module only carries signals in and effects out.

One thread per candidate takes one signal at a time from one inbox. Session states, watches, replies and operators' wishes come
from ZooKeeper's threads, requests from the runner's; all of them only put a signal into the inbox, so nothing blocks
ZooKeeper's threads, no lock is held in a callback, and two reconnections cannot interleave (CURATOR-620, -644, -653). Before each
signal the clock is looked at first: an end of the lease is never overtaken by a late acknowledgement.

On each failure: ZooKeeper silent: the term pauses, then ends with its lease, and the candidate tries for ever, at most a second
apart, to stand again once the runner asks it to. The session expires: a new one enlists anew. This thread itself fails (a bug):
the term ends, :meth:`Candidate.await_term` raises, nothing goes on unnoticed.
"""

from __future__ import annotations

import logging
import queue
import random
import threading
from collections.abc import Callable
from types import TracebackType

from leaderq.clock import now_s
from leaderq.election.decision import Effect, Role, Signal, step
from leaderq.election.layout import Layout
from leaderq.election.line import Line
from leaderq.election.operator import Operator
from leaderq.election.records import Wishes
from leaderq.election.tenure import Tenure
from leaderq.errors import LeaderqError, RequestRefused
from leaderq.events import (
    Event,
    EventBus,
    SessionChanged,
    Stage,
    Standing,
    TermBegan,
    TermEnded,
    TermEnding,
    Withdrawn,
    WorkPaused,
    WorkResumed,
)
from leaderq.term import OpenTerm, Reason
from leaderq.zookeeper import AnyClient, SessionState, as_session

log = logging.getLogger(__name__)

_RETRY_FIRST_S = 0.05
_RETRY_LONGEST_S = 1.0
_SESSION_SIGNALS = {
    SessionState.CONNECTED: Signal.CONNECTED,
    SessionState.SUSPENDED: Signal.SUSPENDED,
    SessionState.LOST: Signal.LOST,
    SessionState.CLOSED: Signal.LOST,
}


class Candidate:
    """Competes for the leadership of ``career`` and keeps up the terms it wins.

    ``session`` is a :class:`~leaderq.zookeeper.Session` or a started ``KazooClient``; ``id`` is shown to operators and must
    differ between candidates; ``root`` is the parent znode of all careers.

    A term is won with :meth:`stand` and :meth:`await_term`, and must be given back with :meth:`conclude` once no code works on
    it any more, however it ended: until then nobody else is let in after a planned end.

    Guarantees: at no instant do two candidates of one ensemble hold a term that passes ``check()``, whatever the network,
    processes and sessions do, as long as their clocks run at rates within a few per cent of each other.
    Not guaranteed: that somebody leads; while the quorum is gone, nobody does.
    """

    def __init__(
        self,
        session: AnyClient,
        career: str,
        *,
        id: str,
        root: str = "/leaderq",
        events: EventBus | None = None,
    ) -> None:
        self.session = as_session(session)
        self.career = career
        self.id = id
        self._events = events or EventBus()
        self._layout = Layout(root, career)
        self._inbox: queue.SimpleQueue[Signal | Callable[[], None]] = queue.SimpleQueue()
        self._line = Line(self.session, self._layout, id, stirred=lambda: self._inbox.put(Signal.STIRRED))
        self._role = Role.RESTING
        self._tenure: Tenure | None = None
        self._reason: Reason | None = None
        self._silent = False
        self._operator_paused = False
        self._retry_at_s: float | None = None
        self._retry_delay_s = _RETRY_FIRST_S
        self._changed = threading.Condition()
        self._won: OpenTerm | None = None
        self._concluded: dict[int, bool] = {}
        self._broken: BaseException | None = None
        self._woken = False
        self._stopping = False
        self._released = False
        self._thread: threading.Thread | None = None

    # ---- what the runner asks -------------------------------------------------------------------------------------------

    def stand(self) -> None:
        """Join the line, or say again that one wants to be in it. Returns at once; never raises for want of a connection."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name=f"leaderq-candidate-{self.career}", daemon=True)
            self.session.add_listener(self._session_changed)
            self._thread.start()
        self._inbox.put(Signal.STAND)

    def await_term(self, timeout_s: float | None = None) -> OpenTerm | None:
        """The term this candidate has won, waiting for it at most ``timeout_s`` seconds; ``None`` if there is none by then."""
        with self._changed:
            self._changed.wait_for(lambda: self._won or self._broken or self._woken, timeout_s)
            self._woken = False
            if self._broken is not None:
                raise LeaderqError(
                    f"candidate {self.id!r} of {self.career!r} broke down: {self._broken!r}"
                ) from self._broken
            won, self._won = self._won, None
            return won

    def wake(self) -> None:
        """Let :meth:`await_term` return now."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def step_down(self, reason: Reason) -> None:
        """Wind the present term up, if there is one, for ``reason``."""
        self._do(lambda: self._tell_to_end(reason))

    def announce(self, term: OpenTerm, stage: Stage) -> None:
        """Publish that ``term`` has entered ``stage``; observers see it, nothing depends on it."""
        self._do(lambda: self._announce(term, stage))

    def conclude(self, term: OpenTerm, reason: Reason, *, timeout_s: float = 5.0) -> bool:
        """Give ``term`` back: its code has returned. Gives whether the end was recorded within ``timeout_s`` (a clean end).

        ``reason`` counts when the term was still on. The candidate then rests; :meth:`stand` puts it at the end of the line.
        """
        term.wind_up(reason)
        self._do(lambda: self._conclude(term))
        with self._changed:
            self._changed.wait_for(lambda: term.number in self._concluded or self._broken, timeout_s)
            return self._concluded.pop(term.number, False)

    def transfer(self, *, to: str) -> None:
        """Ask that candidate ``to`` leads after the present term of this one; the term then winds up as *transfer*.

        Raises :class:`RequestRefused` when this candidate does not lead.
        """
        tenure = self._tenure
        if tenure is None:
            raise RequestRefused(f"candidate {self.id!r} does not lead {self.career!r}, so it has nothing to transfer")
        Operator(self.session, self.career, root=self._layout.root).wish_for(successor=to, term=tenure.term.number)

    def withdraw(self, *, timeout_s: float = 5.0) -> bool:
        """Leave the line, and end the present term if there is one; gives whether that was confirmed within ``timeout_s``.

        A term that :meth:`await_term` has given out must still be concluded by its runner.
        """
        if self._thread is None:
            return True
        heard = threading.Event()
        self._do(self._withdraw)
        self._do(lambda: self._mark(heard))
        with self._changed:
            done = self._changed.wait_for(lambda: self._broken or (heard.is_set() and self._role is Role.RESTING), timeout_s)
            return bool(done)

    def close(self, *, timeout_s: float = 5.0) -> None:
        """Withdraw and end the thread. May be called twice, and without :meth:`stand`.

        A term that was given out should be concluded first: within ``timeout_s`` it still can be, after that its znode stays
        until the session ends.
        """
        if self._thread is None:
            return
        self.withdraw(timeout_s=timeout_s)
        self.session.remove_listener(self._session_changed)
        self._do(self._stop)
        self._thread.join(timeout_s)
        self._thread = None

    @property
    def role(self) -> Role:
        """Where this candidate stands, for people and tests; it may be past by the time it is looked at."""
        return self._role

    def __enter__(self) -> Candidate:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._tenure is not None:
            self.conclude(self._tenure.term, Reason.FAILED if error else Reason.WITHDRAWN)
        self.close()

    # ---- the thread -----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                signal = self._next()
                if callable(signal):
                    signal()
                elif signal is not None:
                    self._take(signal)
        except Exception as exc:
            log.exception("candidate %r of %r broke down; its term ends", self.id, self.career)
            if self._tenure is not None:
                self._tenure.term.wind_up(Reason.FENCED)
            with self._changed:
                self._broken = exc
                self._changed.notify_all()

    def _next(self) -> Signal | Callable[[], None] | None:
        """The next signal, from the clock or from the inbox; ``None`` when it is time to look again."""
        due = self._due(now_s())
        if due is not None:
            return due
        wakes = [self._retry_at_s] if self._retry_at_s is not None else []
        if self._tenure is not None and self._role.holds_term:
            wakes.append(self._tenure.lease.wake_s(now_s()))
        timeout_s = max(0.0, min(wakes) - now_s()) if wakes else None
        try:
            return self._inbox.get(timeout=timeout_s)
        except queue.Empty:
            return None

    def _due(self, at_s: float) -> Signal | None:
        if self._tenure is not None and self._role.holds_term:
            signal = self._tenure.signal_due(at_s)
            if signal is Signal.LEASE_OVER or (signal is Signal.LATE and self._role is Role.LEADING):
                return signal
            if at_s >= self._tenure.lease.renew_s:
                self._tenure.renew(at_s)
        if self._retry_at_s is not None and at_s >= self._retry_at_s:
            self._retry_at_s = None
            return Signal.RETRY
        return None

    def _take(self, signal: Signal | None) -> None:
        while signal is not None:
            self._note(signal)
            role, effects = step(self._role, signal)
            self._assign(role)
            signal = None
            for effect in effects:
                signal = self._carry_out(effect) or signal

    def _assign(self, role: Role) -> None:
        if role is self._role:
            return
        log.debug("candidate %r of %r: %s -> %s", self.id, self.career, self._role.name, role.name)
        with self._changed:
            self._role = role
            self._changed.notify_all()

    def _note(self, signal: Signal) -> None:
        """Keep what a signal says beyond its row in the table."""
        if signal is Signal.WITHDRAW:
            self._reason = self._reason or Reason.WITHDRAWN
        elif signal is Signal.CONNECTED:
            self._line.forget_watch()
            if self._tenure is not None:
                self._tenure.read_wishes()
        elif signal in (Signal.ENLISTED, Signal.BEHIND, Signal.WON, Signal.RELEASED):
            self._retry_delay_s = _RETRY_FIRST_S

    # ---- effects --------------------------------------------------------------------------------------------------------

    def _carry_out(self, effect: Effect) -> Signal | None:
        deposed_for = effect.deposes_for
        if deposed_for is not None:
            self._end_term(deposed_for)
            return None
        return _ACTIONS[effect](self)

    def _survey(self) -> Signal:
        known = self._line.place
        signal = self._line.survey()
        if self._line.place is not None and (known is None or known.name != self._line.place.name):
            self._publish(Standing(self.career, self.id, self._line.place.name))
        return signal

    def _begin_term(self) -> None:
        victory = self._line.victory
        assert victory is not None  # WON follows a claim
        self._tenure = Tenure(
            self.session,
            victory,
            career=self.career,
            term_path=self._layout.term,
            control_path=self._layout.control,
            tell=self._inbox.put,
            hear_wishes=lambda wishes: self._do(lambda: self._heed(wishes)),
        )
        self._reason = None
        self._silent = self._operator_paused = self._released = False
        self._tenure.open()
        term = self._tenure.term
        self._publish(TermBegan(self.career, self.id, term.number, victory.unclean))
        with self._changed:
            self._won = term
            self._changed.notify_all()

    def _renew(self) -> None:
        if self._tenure is not None:
            self._tenure.renew(now_s())

    def _fall_silent(self) -> None:
        self._silent = True
        self._show_pause("ZooKeeper has not acknowledged a write lately")

    def _hear_again(self) -> None:
        self._silent = False
        self._show_pause("")

    def _show_pause(self, why: str) -> None:
        if self._tenure is None:
            return
        term = self._tenure.term
        paused = self._silent or self._operator_paused
        if paused != term.paused:
            term.pause(paused)
            event = WorkPaused(self.career, self.id, term.number, why) if paused else None
            self._publish(event or WorkResumed(self.career, self.id, term.number))

    def _wind_up(self) -> None:
        self._end_term(self._reason or Reason.WITHDRAWN)

    def _end_term(self, reason: Reason) -> None:
        if self._tenure is None:
            return
        term = self._tenure.term
        term.wind_up(reason)
        if reason.deposes:
            self._line.finish()
        self._publish(TermEnding(self.career, self.id, term.number, term.reason or reason))

    def _release(self) -> Signal:
        tenure = self._tenure
        signal = (
            self._line.release(tenure.record, tenure.term.reason) if tenure is not None else self._line.release(None, None)
        )
        self._released = signal is Signal.RELEASED
        return signal

    def _rest(self) -> None:
        self._retry_at_s = None
        tenure, self._tenure = self._tenure, None
        self._reason = None
        if tenure is None:
            self._publish(Withdrawn(self.career, self.id))
            return
        tenure.close()
        term = tenure.term
        reason = term.reason or Reason.WITHDRAWN
        clean = self._released and not reason.deposes
        term.close()
        self._publish(TermEnded(self.career, self.id, term.number, reason, clean))
        with self._changed:
            self._concluded = {term.number: clean}
            self._changed.notify_all()

    def _retry_soon(self) -> None:
        # Jitter: a whole line of candidates finds the quorum back at the same moment.
        self._retry_at_s = now_s() + self._retry_delay_s * random.uniform(0.5, 1.0)
        self._retry_delay_s = min(_RETRY_LONGEST_S, self._retry_delay_s * 2)

    def _look_later(self) -> None:
        self._retry_at_s = now_s() + self.session.timeout_s

    def _drop_connection(self) -> None:
        self.session.drop_connection()

    # ---- wishes and requests, on the candidate's thread -------------------------------------------------------------------

    def _heed(self, wishes: Wishes) -> None:
        if self._tenure is None:
            return
        self._operator_paused = wishes.paused
        self._show_pause("an operator paused the career")
        if wishes.step_down == self._tenure.term.number:
            self._tell_to_end(Reason.TRANSFER if wishes.successor else Reason.STEP_DOWN)

    def _tell_to_end(self, reason: Reason) -> None:
        self._reason = self._reason or reason
        self._take(Signal.TOLD)

    def _withdraw(self) -> None:
        self._take(Signal.WITHDRAW)
        with self._changed:
            untaken, self._won = self._won, None
        if untaken is not None:  # nobody's code works on it
            self._conclude(untaken)

    def _announce(self, term: OpenTerm, stage: Stage) -> None:
        if self._tenure is not None and self._tenure.term is term and self._role.holds_term:
            self._tenure.announce(stage)

    def _conclude(self, term: OpenTerm) -> None:
        if self._tenure is not None and self._tenure.term is term:
            self._line.finish()
            self._take(Signal.HANDED_OVER)

    # ---- edges ------------------------------------------------------------------------------------------------------------

    def _mark(self, heard: threading.Event) -> None:
        with self._changed:
            heard.set()
            self._changed.notify_all()

    def _stop(self) -> None:
        self._stopping = True
        self.wake()

    def _do(self, request: Callable[[], None]) -> None:
        self._inbox.put(request)

    def _session_changed(self, state: SessionState) -> None:
        self._inbox.put(_SESSION_SIGNALS[state])
        self._publish(SessionChanged(self.career, self.id, state.name.lower()))

    def _publish(self, event: Event) -> None:
        self._events.publish(event)


_ACTIONS: dict[Effect, Callable[[Candidate], Signal | None]] = {
    Effect.ENLIST: lambda candidate: candidate._line.enlist(),
    Effect.REQUEUE: lambda candidate: candidate._line.requeue(),
    Effect.SURVEY: Candidate._survey,
    Effect.CLAIM: lambda candidate: candidate._line.claim(),
    Effect.BEGIN_TERM: Candidate._begin_term,
    Effect.RENEW: Candidate._renew,
    Effect.PAUSE: Candidate._fall_silent,
    Effect.RESUME: Candidate._hear_again,
    Effect.WIND_UP: Candidate._wind_up,
    Effect.DROP_CONNECTION: Candidate._drop_connection,
    Effect.RELEASE: Candidate._release,
    Effect.RETRY_SOON: Candidate._retry_soon,
    Effect.LOOK_LATER: Candidate._look_later,
    Effect.REST: Candidate._rest,
}
