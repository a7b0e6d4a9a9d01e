"""How long this process may believe, without asking, that its session stands and so nobody else has its slots.

The rule of a leader's lease: only an *acknowledged write* proves that the session lives, as of when
the write was sent. The servers end a session no earlier than T after they last heard of it, and
hear of it at most half a tick late; so nobody else can be the head before 2T/3 after the sending
(Z6 and Z7 in docs/design/facts.md). A process that was frozen finds the trust over at its first
look at the clock.
"""

from __future__ import annotations

import threading

from leaderq.clock import now_s
from leaderq.errors import LeaderqError
from leaderq.zookeeper import Session, SessionState


class Trust:
    """The trust in one session after another. May be used from any thread."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._heard: tuple[int, float] = (0, 0.0)

    def heard(self, session_id: int, sent_s: float) -> None:
        """A write sent at ``sent_s`` was acknowledged in this session, or refused by the leader for another reason than
        the session."""
        if session_id != self._session.id:  # what is said of a session that is over says nothing about the next
            return
        with self._lock:
            known, before_s = self._heard
            self._heard = (session_id, max(sent_s, before_s) if known == session_id else sent_s)

    def holds(self, session_id: int) -> bool:
        """Whether this session certainly stands."""
        session = self._session
        heard_id, heard_s = self._heard
        if session.state is SessionState.CLOSED or session.id != session_id or heard_id != session_id:
            return False
        return now_s() < heard_s + self._timeout_s() * 2 / 3

    @property
    def renewal_s(self) -> float:
        """Seconds from one renewal to the next: T/6, so that two may be lost."""
        return max(0.05, self._timeout_s() / 6)

    def _timeout_s(self) -> float:
        try:
            return self._session.timeout_s
        except LeaderqError:
            return 0.0
