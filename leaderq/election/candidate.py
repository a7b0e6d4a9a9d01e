"""A candidate of the election: the thread that follows the decision table.

:mod:`leaderq.election.decision` decides; ZooKeeper says who is first; the clock alone ends a lease.
Each candidate has one thread, which takes one signal at a time from one inbox. All other threads
only put signals there, so nothing blocks ZooKeeper's threads, and two reconnections cannot
interleave (CURATOR-620, -644, -653). The thread looks at the clock before each signal: a late
acknowledgement never overtakes the end of the lease.

On each failure: if ZooKeeper is silent or refuses requests or the login, the term pauses, then ends
with its lease; when the runner asks the candidate to stand again, it tries for ever. If the session
expires, the candidate enlists with the next session. If the owner closes the session, the candidate
stands no more, and :meth:`Candidate.await_term` returns, and raises from then on. If this thread
itself fails (a bug), the term ends, :meth:`Candidate.await_term` raises, and the candidate's znode
is deleted as soon as no code can work on the term any more.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from weakref import WeakSet

from leaderq.base import clock
from leaderq.config import Settings
from leaderq.election.campaign import Campaign, Request
from leaderq.election.decision import Input, Role
from leaderq.election.layout import EndDetails, Layout
from leaderq.election.observer import Operator
from leaderq.election.software import Software
from leaderq.errors import FromOutside, LeaderqError, RequestRefused
from leaderq.events import EventBus, SessionChanged, Stage
from leaderq.observability.logging import log_events
from leaderq.term import OpenTerm, Reason, Term
from leaderq.threads import Service, primitives
from leaderq.threads.waker import bounded_s
from leaderq.zookeeper import AnyClient, Session, SessionState, as_session

log = logging.getLogger(__name__)

_session_inputs = {
    SessionState.CONNECTED: Input.CONNECTED,
    SessionState.SUSPENDED: Input.SUSPENDED,
    SessionState.LOST: Input.LOST,
    SessionState.CLOSED: Input.LOST,
}
_SEEN_THROUGH = (Role.ENDING, Role.OUSTED, Role.RELEASING)
_LEAVE_AGAIN_S = 0.5
_told: WeakSet[Session] = WeakSet()


class Candidate:
    """Competes for the leadership of ``career``, and keeps up the terms that it wins.

    ``session`` is a :class:`~leaderq.zookeeper.Session` or a started ``KazooClient``; ``id`` is
    shown to operators and must differ between candidates; ``root`` is the parent znode of all
    careers. Events are logged as ``leaderq.events``. ``ending(term)`` is called when a term begins
    to end, on a thread that must not be blocked. ``software`` is shown to operators; with
    ``prefers_newest`` this candidate lets candidates with newer software lead instead.

    A term is won with :meth:`stand` and :meth:`await_term`. However it ends, it must be released
    with :meth:`conclude` once no code works on it any more: after a planned end nobody else leads
    before that.

    Guarantees: at no instant do two candidates of one ensemble hold a term that passes ``check()``,
    whatever the network, processes, servers and sessions do, as long as their clocks run at rates
    within 4 % of each other. Not guaranteed: that there is a leader: without a quorum there is
    none.

    :raises ConfigurationError: a name cannot be used.
    """

    def __init__(
        self,
        session: AnyClient,
        career: str,
        *,
        id: str,
        root: str = "/leaderq",
        events: EventBus | None = None,
        ending: Callable[[OpenTerm], None] = lambda _term: None,
        software: Software | None = None,
        prefers_newest: bool = False,
    ) -> None:
        Settings(career=career, id=id, root=root)  # whose checks are those of the names
        self.session = as_session(session)
        self.career = career
        self.id = id
        self._events = EventBus() if events is None else events
        log_events(self._events)
        self._root = root
        self._inbox: primitives.SimpleQueue[Input | Request] = primitives.SimpleQueue()
        self._campaign = Campaign(
            self.session,
            Layout(root, career),
            id,
            inbox=self._inbox.put,
            publish=self._events.publish,
            won=self._has_won,
            ending=ending,
            software=software or Software(),
            prefers_newest=prefers_newest,
        )
        # guards the following, and is notified after each signal while somebody waits for a fact
        self._changed = primitives.Condition()
        self._waiting = 0
        self._won: OpenTerm | None = None
        self._broken: BaseException | None = None
        self._woken = False
        self._closed = False
        self._stopping = False
        self._code_returned = primitives.Event()
        self._answered = primitives.Event()
        self._answered.set()
        self._asked_s = 0.0
        self._service = Service(f"leaderq-candidate-{career}", self._run)

    # ---- what the runner asks -------------------------------------------------------------------

    def stand(self) -> None:
        """Join the line, or stay in it. Returns at once, with or without a connection.

        Does nothing after :meth:`close`. Raises :class:`SessionClosed` if the session is closed, or
        if this process was forked from the one that opened it; so does :meth:`await_term`.
        """
        if self._closed:
            return  # a release may still be under way, and nobody would mind the new znode
        self.session.check_open()
        if self._service.start():
            self.session.add_listener(self._session_changed)
        self._inbox.put(Input.STAND)

    def await_term(self, timeout_s: float | None = None) -> OpenTerm | None:
        """Return the term that this candidate has won; ``None`` if it wins none within
        ``timeout_s`` seconds.
        """
        self.session.check_open()
        with self._changed:
            limit_s = None if timeout_s is None else bounded_s(timeout_s)
            self._changed.wait_for(lambda: self._won or self._broken or self._woken, limit_s)
            self._woken = False
            if self._broken is not None:
                problem = f"candidate {self.id!r} of {self.career!r} broke down"
                raise LeaderqError(f"{problem}: {self._broken!r}") from self._broken
            won, self._won = self._won, None
            return won

    def wake(self) -> None:
        """Make :meth:`await_term` return now."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def step_down(self, reason: Reason, *, term: Term | None = None) -> None:
        """Wind up the present term; if ``term`` is given, only if the present term is ``term``."""
        self._inbox.put(lambda: self._campaign.tell_to_end(reason, term))

    def announce(self, term: OpenTerm, stage: Stage) -> None:
        """Publish that ``term`` has entered ``stage``, for observers; nothing depends on it."""
        self._inbox.put(lambda: self._campaign.announce(term, stage))

    def conclude(
        self,
        term: OpenTerm,
        reason: Reason,
        *,
        timeout_s: float = 5.0,
        details: EndDetails | None = None,
    ) -> bool:
        """Release ``term``, whose code has returned. Returns whether its end was recorded within
        ``timeout_s`` seconds (a clean end).

        ``reason`` is the reason of the end if the term was still on; operators are shown
        ``details``. After this the candidate does not stand; :meth:`stand` puts it at the end of
        the line.
        """
        term.wind_up(reason)
        self._code_returned.set()
        self._inbox.put(lambda: self._campaign.conclude(term, details))
        self._wait(lambda: term.id in self._campaign.concluded, timeout_s)
        return self._campaign.concluded.get(term.id, False)

    def transfer(self, *, to: str) -> None:
        """Ask that candidate ``to`` leads next; the present term ends with the reason *transfer*.

        Raises :class:`RequestRefused` when this candidate does not lead.
        """
        if (tenure := self._campaign.tenure) is None:
            problem = f"candidate {self.id!r} does not lead {self.career!r}"
            raise RequestRefused(f"{problem}, so it has nothing to transfer")
        operator = Operator(self.session, self.career, root=self._root)
        operator.wish_for(successor=to, term=tenure.term.number)

    def withdraw(self, *, timeout_s: float = 5.0) -> bool:
        """Leave the line, and end the present term. If :meth:`await_term` has returned the term, it
        must still be concluded. Returns whether all this was confirmed within ``timeout_s``
        seconds.
        """
        if not self._service.is_running:
            return True
        heard = primitives.Event()
        self._inbox.put(self._withdraw)
        self._inbox.put(heard.set)
        return self._wait(lambda: heard.is_set() and self.role is Role.IDLE, timeout_s)

    def close(self, *, timeout_s: float = 5.0) -> None:
        """Withdraw, and end the thread. May be called twice, from any thread, and without
        :meth:`stand`.

        A term that :meth:`await_term` has returned must still be concluded; its znode stays until
        then. If that, or an answer of ZooKeeper, takes longer than ``timeout_s`` seconds, the
        candidate leaves the line in the background.
        """
        self._closed = True
        self.withdraw(timeout_s=timeout_s)
        self.session.remove_listener(self._session_changed)
        self._inbox.put(self._stop)
        if self._broken is not None:
            self._service.stop(timeout_s)  # it is leaving the line
            self._stop()
        self._service.stop(timeout_s)

    @property
    def role(self) -> Role:
        """The state of this candidate; it may have changed when the caller looks at it."""
        return self._campaign.role

    def silent_s(self) -> float:
        """For how many seconds the candidate's thread has not answered; infinite if it broke down.

        The first call asks the thread and does not wait. Each later call returns how long that
        question has waited; once it was answered, the call asks again.
        """
        if self._broken is not None:
            return float("inf")
        if not self._service.is_running:
            return 0.0
        if self._answered.is_set():
            self._asked_s = clock.now_s()  # first: another caller may look in between
            self._answered.clear()
            self._inbox.put(self._answered.set)
        return clock.now_s() - self._asked_s

    def __enter__(self) -> Candidate:
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        tenure = self._campaign.tenure
        if tenure is not None:
            self.conclude(tenure.term, Reason.FAILED if error else Reason.WITHDRAWN)
        self.close()

    def _wait(self, fact: Callable[[], bool], timeout_s: float) -> bool:
        if self._service.is_current:  # a listener of events, for whose fact nobody else works
            return fact()
        with self._changed:
            self._waiting += 1
            try:
                limit_s = bounded_s(timeout_s)
                return bool(self._changed.wait_for(lambda: self._broken or fact(), limit_s))
            finally:
                self._waiting -= 1

    # ---- the thread -----------------------------------------------------------------------------

    def _run(self, _service: Service) -> None:
        try:
            # A release is seen through, also after close() has stopped to wait for it or for the
            # end of the career's code: a znode that nobody looks after would keep all behind it
            # from leading.
            while not self._stopping or self.role in _SEEN_THROUGH:
                heard = self._next()
                if callable(heard):
                    heard()
                elif heard is not None:
                    self._campaign.take(heard)
                if self._waiting:  # who waits from now on finds the fact
                    with self._changed:
                        self._changed.notify_all()
        except FromOutside:
            raise  # a simulated process is killed
        except BaseException as exc:  # whatever it is, it must not end this thread unsaid
            log.exception("candidate failed, its term ends career=%s id=%s", self.career, self.id)
            tenure = self._campaign.tenure
            self._campaign.end_term(Reason.FENCED)
            with self._changed:
                self._broken = exc
                self._changed.notify_all()
            self._leave_the_line(0.0 if tenure is None else tenure.term.deadline)

    def _leave_the_line(self, lease_until_s: float) -> None:
        """After a break-down, leave the line once no code can work on the term; at the latest T/3
        after the end of its lease.
        """
        try:
            quiet_s = lease_until_s + self.session.shares.answer_s
            while not self._stopping and (left_s := quiet_s - clock.now_s()) > 0:
                if self._code_returned.wait(min(0.1, left_s)):
                    break
            while not self._campaign.leave() and not self._stopping:
                self._code_returned.wait(_LEAVE_AGAIN_S)
                self._code_returned.clear()
        except Exception:
            log.exception("candidate's znode not deleted career=%s id=%s", self.career, self.id)
            with suppress(LeaderqError):  # its owner has closed it: then nothing stands
                self.session.replace("a candidate failed")

    def _next(self) -> Input | Request | None:
        """The next signal, from the clock or the inbox; ``None`` if only the time to look again has
        come.
        """
        due = self._campaign.due(clock.now_s())
        if due is not None:
            return due
        try:
            return self._inbox.get(timeout=self._campaign.wake_in_s(clock.now_s()))
        except primitives.Empty:
            return None

    def _withdraw(self) -> None:
        self._campaign.take(Input.WITHDRAW)
        with self._changed:
            untaken, self._won = self._won, None
        if untaken is not None:  # nobody's code works on it
            self._campaign.conclude(untaken)

    def _has_won(self, term: OpenTerm) -> None:
        self._code_returned.clear()  # that of a former term had
        with self._changed:
            self._won = term
            self._changed.notify_all()

    def _stop(self) -> None:
        self._stopping = True
        self.wake()

    # ---- on a thread of ZooKeeper's -------------------------------------------------------------

    def _session_changed(self, state: SessionState) -> None:
        self._inbox.put(_session_inputs[state])
        if state is SessionState.CLOSED:
            self._inbox.put(self._withdraw)  # else it would try to enlist again for ever
            self.wake()
            if self.session not in _told:  # once for all its candidates
                _told.add(self.session)
                log.warning(
                    "session closed while candidates stand, they leave the election address=%s",
                    self.session.address,
                )
        self._events.publish(SessionChanged(self.career, self.id, state.name.lower()))
