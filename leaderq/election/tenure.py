"""A leader's dealings with ZooKeeper: the lease is renewed, the own znode watched, writes are
fenced, operators are heard.

T is the session time-out, the smallest one granted since the term was won. The leader sends a
write that changes nothing every T/6. Only an *acknowledged write* proves anything: reads, pings and
CONNECTED come from a server that may itself be cut off. Time counts from when it was *sent*. Why
2T/3 from then ends before any other candidate can win: docs/design/election.md, "What the guarantee
rests on".

Who is authoritative: acknowledged writes prolong the lease; the deletion of the own znode, the end
of the session and a refused fence end the term. Nothing here waits, except :meth:`Tenure.write` on
the career's thread: the candidate's thread must always be free to notice the end of the lease.
Replies arrive on ZooKeeper's threads and are only handed on, as signals.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from leaderq import clock
from leaderq.election.decision import Input
from leaderq.election.enlistment import WonClaim
from leaderq.election.layout import Layout, Wishes, WishesDecoder, encode
from leaderq.errors import (
    Deposed,
    NoNode,
    NotConnected,
    SessionClosed,
    SessionExpired,
    ZooKeeperError,
)
from leaderq.events import Stage
from leaderq.term import OpenTerm, Reason, Term
from leaderq.threads import primitives
from leaderq.zookeeper import Check, Operation, Session, SetData, WatchEvent, WatchKind

Tell = Callable[[Input], None]


class LeaseState(Enum):
    """The state of a lease at an instant."""

    FULL = "full"
    LATE = "late"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Lease:
    """``timeout_s`` is T; ``heard_s``: when the last acknowledged write was sent; ``sent_s``: when
    the newest one was, acknowledged or not. Times are seconds on :func:`leaderq.now_s`.
    """

    timeout_s: float
    heard_s: float
    sent_s: float

    @property
    def ends_s(self) -> float:
        """The end of trust: 2T/3 after the last acknowledged write was sent."""
        return self.heard_s + self.timeout_s * 2 / 3

    @property
    def late_s(self) -> float:
        """When silence becomes suspicious: two renewals have gone unanswered."""
        return self.heard_s + self.timeout_s / 3

    @property
    def renew_s(self) -> float:
        """When the next renewal is to be sent: T/6 after the newest one."""
        return self.sent_s + self.timeout_s / 6

    def granted(self, timeout_s: float) -> Lease:
        """A connection was made under the session time-out ``timeout_s``."""
        return replace(self, timeout_s=min(self.timeout_s, timeout_s))

    def sent(self, at_s: float) -> Lease:
        return replace(self, sent_s=max(self.sent_s, at_s))

    def acknowledged(self, sent_s: float) -> Lease:
        """The renewal sent at ``sent_s`` was acknowledged; replies may come in any order."""
        return replace(self, heard_s=max(self.heard_s, sent_s))

    def trust(self, now_s: float) -> LeaseState:
        if now_s >= self.ends_s:
            return LeaseState.NONE
        return LeaseState.LATE if now_s >= self.late_s else LeaseState.FULL

    def wake_s(self, now_s: float) -> float:
        """The next instant at which something is due: a renewal, suspicion, or the end."""
        return min(
            at for at in (self.renew_s, self.late_s, self.ends_s) if at > now_s or at == self.ends_s
        )


class Tenure:
    """One term as its leader keeps it up. ``tell`` hands a signal to the candidate's thread.

    ``node`` is the path of the znode that stands for this term, ``record`` the ``term`` record as
    last written.
    """

    def __init__(
        self,
        session: Session,
        won: WonClaim,
        layout: Layout,
        decoder: WishesDecoder,
        *,
        tell: Tell,
        hear_wishes: Callable[[Wishes], None],
        tell_end: Callable[[Term, Reason], None],
    ) -> None:
        self._session = session
        self._owner = won.session
        self.node = won.node
        self.record = won.record
        self._layout = layout
        self._decoder = decoder
        self._tell = tell
        self._hear_wishes = hear_wishes
        self.lease = Lease(session.timeout_s, won.sent_s, won.sent_s)
        self._lock = (
            primitives.Lock()
        )  # guards the lease: replies come on another thread than sends
        self._closed = False
        self._own_watch_set = False
        self.term = OpenTerm(
            number=won.record.number,
            id=str(won.record.id),
            career=layout.career,
            candidate=str(won.record.candidate),
            deadline=self.lease.ends_s,
            write=self.write,
            unclean=won.unclean,
            tell_end=tell_end,
        )

    def open(self) -> None:
        """Watch the own znode and hear operators; the lease runs from the claim on."""
        self._watch_own()
        self.read_wishes()

    def grant(self, timeout_s: float) -> None:
        """Count a shorter session time-out, granted with a connection, at once. From any thread."""
        with self._lock:
            self.lease = self.lease.granted(timeout_s)
            self.term.shorten(self.lease.ends_s)

    def close(self) -> None:
        """Let no later reply or watch of this tenure be heard."""
        self._closed = True

    def signal_due(self, at_s: float) -> Input | None:
        """The signal that follows from the clock alone at ``at_s``."""
        if self.term.remaining_s() <= 0:
            return Input.LEASE_OVER
        state = self.lease.trust(at_s)
        if state is LeaseState.NONE:
            return Input.LEASE_OVER
        return Input.LATE if state is LeaseState.LATE else None

    def renew(self, at_s: float) -> None:
        """Send a renewal: a multi of one check of the own znode, a transaction of the quorum that
        changes nothing. A write would use up the data watch of a Java ``LeaderLatch`` behind us
        (Z18).
        """
        with self._lock:
            self.lease = self.lease.sent(at_s)
        if not self._own_watch_set:
            self._watch_own()
        renewal = self._session.multi_async([Check(self.node)])
        renewal.add_done_callback(lambda reply: self._renewed(reply, at_s))

    def announce(self, stage: Stage) -> None:
        """Publish the stage in the ``term`` record, fenced; it also counts as a renewal."""
        self.record = replace(self.record, stage=stage.value)
        at_s = clock.now_s()
        reply = self._session.multi_async(
            [Check(self.node), SetData(self._layout.term, encode(self.record))]
        )
        reply.add_done_callback(lambda done: self._renewed(done, at_s))

    def read_wishes(self) -> None:
        """Read the operators' wishes, and watch for changes."""
        reply = self._session.get_async(self._layout.control, watch=self._on_control)
        reply.add_done_callback(self._wishes_read)

    def write(self, term: Term, ops: Sequence[Operation]) -> list[Any]:
        """See :meth:`leaderq.term.Term.write`. Called on the career's thread."""
        # An answer after the end of the lease is still useful: without it the outcome is unknown.
        # If no answer can come, the candidate drops the connection, which ends the wait.
        after_s = self._session.timeout_s / 3
        while True:
            if self._session.id not in (self._owner, None):
                raise self._deposed(Reason.SESSION)
            try:
                fenced = [Check(self.node), *ops]
                return self._session.multi(fenced, timeout_s=term.remaining_s() + after_s)[1:]
            except NotConnected:
                # Nothing was sent. Wait for the connection, at most as long as the lease lasts.
                clock.sleep(min(0.02, term.remaining_s()))
                term.check()
            except (SessionExpired, SessionClosed) as exc:
                raise self._deposed(Reason.SESSION) from exc
            except ZooKeeperError as exc:
                if isinstance(exc, NoNode) and exc.index == 0:
                    raise self._deposed(Reason.FENCED) from exc
                if exc.index is not None:
                    exc.index -= 1  # the caller does not count our check
                raise

    def _deposed(self, reason: Reason) -> Deposed:
        self.term.wind_up(reason)
        self._say(Input.LOST if reason is Reason.SESSION else Input.FENCED)
        return Deposed(term=self.term.number, reason=self.term.reason or reason)

    def _renewed(self, reply: primitives.Future[Any], sent_s: float) -> None:
        error = reply.exception()
        if isinstance(error, NoNode):
            self._say(Input.GONE)
        elif isinstance(error, (SessionExpired, SessionClosed)):
            self._say(Input.LOST)
        elif error is None:
            with self._lock:
                self.lease = self.lease.acknowledged(sent_s)
                self.term.prolong(self.lease.ends_s)
                trust = self.lease.trust(clock.now_s())
            if trust is LeaseState.FULL:
                self._say(Input.HEARD)
        # Any other error: no acknowledgement. The lease says when that matters.

    def _watch_own(self) -> None:
        """Hear of the deletion of the own znode at once, not at the next renewal (CURATOR-171)."""
        self._own_watch_set = True
        reply = self._session.children_async(self.node, watch=self._on_own)
        reply.add_done_callback(self._own_watched)

    def _own_watched(self, reply: primitives.Future[list[str]]) -> None:
        error = reply.exception()
        if isinstance(error, NoNode):
            self._say(Input.GONE)
        elif error is not None:
            self._own_watch_set = False  # with the next renewal

    def _on_own(self, event: WatchEvent) -> None:
        if event.kind is WatchKind.DELETED:
            self._say(Input.GONE)
        else:
            self._own_watch_set = False

    def _on_control(self, event: WatchEvent) -> None:
        if event.kind is not WatchKind.SESSION and not self._closed:
            self.read_wishes()

    def _wishes_read(self, reply: primitives.Future[Any]) -> None:
        if self._closed or reply.exception() is not None:
            return  # read again when connected
        wishes = self._decoder.decoded(reply.result()[0])
        if wishes is not None:  # else those known before stand
            self._hear_wishes(wishes)

    def _say(self, signal: Input) -> None:
        if not self._closed:
            self._tell(signal)
