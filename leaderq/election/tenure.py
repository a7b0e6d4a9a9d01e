"""A leader's dealings with ZooKeeper: the lease is renewed, the own znode watched, writes are
fenced, operators are heard.

Who is authoritative: acknowledged writes prolong the lease; the deletion of the own znode, the end
of the session and a refused fence end the term. Nothing here waits, except :meth:`Tenure.write` on
the career's thread: the candidate's thread must always be free to notice the end of the lease.
Replies arrive on ZooKeeper's threads and are only handed on, as signals.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from typing import Any

from leaderq.clock import now_s
from leaderq.election.decision import Input
from leaderq.election.enlistment import WonClaim
from leaderq.election.layout import Layout, Wishes, WishesDecoder, encode
from leaderq.election.lease import Lease, LeaseState
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
from leaderq.zookeeper import Check, Operation, Session, SetData, WatchEvent, WatchKind

Tell = Callable[[Input], None]


class Tenure:
    """One term as its leader keeps it up.

    ``tell`` hands a signal to the candidate's thread. ``node`` is the path of the znode that stands
    for this term, ``record`` the ``term`` record as last written.
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
        self.lease = Lease.begun(timeout_s=session.timeout_s, sent_s=won.sent_s)
        self._lock = threading.Lock()  # guards the lease: replies come on another thread than sends
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
        """What the clock alone says at ``at_s``."""
        if self.term.remaining_s() <= 0:
            return Input.LEASE_OVER
        state = self.lease.trust(at_s)
        return {LeaseState.NONE: Input.LEASE_OVER, LeaseState.LATE: Input.LATE}.get(state)

    def renew(self, at_s: float) -> None:
        """Send a renewal: a multi of one check of the own znode.

        It is a transaction of the quorum like any other, and changes nothing. A write to the znode
        would use up the one-shot data watch of a Java ``LeaderLatch`` behind us (Z18).
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
        at_s = now_s()
        reply = self._session.multi_async(
            [Check(self.node), SetData(self._layout.term, encode(self.record))]
        )
        reply.add_done_callback(lambda done: self._renewed(done, at_s))

    def read_wishes(self) -> None:
        """Read what operators want, and watch for changes."""
        reply = self._session.get_async(self._layout.control, watch=self._on_control)
        reply.add_done_callback(self._wishes_read)

    def write(self, term: Term, ops: Sequence[Operation]) -> list[Any]:
        """See :meth:`leaderq.term.Term.write`. Called on the career's thread."""
        # An answer after the end of the lease is still worth having: without it the outcome is
        # unknown. Where none can come, the candidate drops the connection, which ends the wait.
        after_s = self._session.timeout_s / 3
        while True:
            if self._session.id not in (self._owner, None):
                raise self._deposed(Reason.SESSION)
            try:
                fenced = [Check(self.node), *ops]
                return self._session.multi(fenced, timeout_s=term.remaining_s() + after_s)[1:]
            except NotConnected:
                # Nothing was sent. Wait for the connection, at most as long as the lease lasts.
                time.sleep(min(0.02, term.remaining_s()))
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

    def _renewed(self, reply: Future[Any], sent_s: float) -> None:
        error = reply.exception()
        if isinstance(error, NoNode):
            self._say(Input.GONE)
        elif isinstance(error, (SessionExpired, SessionClosed)):
            self._say(Input.LOST)
        elif error is None:
            with self._lock:
                self.lease = self.lease.acknowledged(sent_s)
                self.term.prolong(self.lease.ends_s)
                trust = self.lease.trust(now_s())
            if trust is LeaseState.FULL:
                self._say(Input.HEARD)
        # Any other error: no acknowledgement. The lease says when that matters.

    def _watch_own(self) -> None:
        """Hear of the deletion of the own znode at once, not at the next renewal (CURATOR-171)."""
        self._own_watch_set = True
        reply = self._session.children_async(self.node, watch=self._on_own)
        reply.add_done_callback(self._own_watched)

    def _own_watched(self, reply: Future[list[str]]) -> None:
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

    def _wishes_read(self, reply: Future[Any]) -> None:
        if self._closed or reply.exception() is not None:
            return  # read again when connected
        wishes = self._decoder.decoded(reply.result()[0])
        if wishes is not None:  # else those known before stand
            self._hear_wishes(wishes)

    def _say(self, signal: Input) -> None:
        if not self._closed:
            self._tell(signal)
