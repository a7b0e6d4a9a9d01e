"""The leader's knowledge of sessions: which exist, who serves them, and when they end.

A session is *touched* by what a client sends to the leader itself, by the touches that a follower
reports, and when a client takes the session up. It ends when it was not touched for its time-out,
rounded up to the next tick: there is a bucket of sessions for each tick.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leaderq.testing.simulation.ensemble.messages import Code, RequestError

_ODD = 0x9E3779B97F4A7C15F39CC0605CEDC835


def password_of(session_id: int) -> bytes:
    """The password of a session; any server can compute it."""
    return (session_id * _ODD % (1 << 128)).to_bytes(16, "big")


class TrackedSession:
    """One session. ``owner`` is the server through which its client writes."""

    __slots__ = ("expires_ms", "id", "is_closing", "owner", "timeout_ms")

    def __init__(self, id: int, timeout_ms: int) -> None:
        self.id = id
        self.timeout_ms = timeout_ms
        self.expires_ms = 0
        self.is_closing = False
        self.owner: object = None


class SessionTracker:
    """The leader's sessions. ``expire(session_id)`` is called for each session that nobody has
    touched for its time-out.

    ``now`` is the leader's clock in seconds; ``at`` starts a timer on it.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        at: Callable[[float, Callable[[], None]], Any],
        tick_ms: int,
        expire: Callable[[int], object],
    ) -> None:
        self._now = now
        self._at = at
        self._tick_ms = tick_ms
        self._expire = expire
        self._sessions: dict[int, TrackedSession] = {}
        self._timer: Any = None
        self._next_ms = 0
        """When the timer looks; no session ends before."""

    def track(self, session_id: int, timeout_ms: int) -> TrackedSession:
        """Keep track of a session from now on, and touch it."""
        session = self._sessions.get(session_id)
        if session is None:
            session = self._sessions[session_id] = TrackedSession(session_id, timeout_ms)
        self.touch(session_id, timeout_ms)
        return session

    def touch(self, session_id: int, timeout_ms: int) -> bool:
        """Touch the session, and return whether it is alive."""
        session = self._sessions.get(session_id)
        if session is None or session.is_closing:
            return False
        tick_ms = self._tick_ms
        session.expires_ms = (int(self._now() * 1000) + timeout_ms) // tick_ms * tick_ms + tick_ms
        if self._timer is None or session.expires_ms < self._next_ms:
            self._look_at(session.expires_ms)
        return True

    def check(self, session_id: int, owner: object) -> None:
        """Check that ``owner`` may serve the session. If no server owns it, ``owner`` does from now
        on.

        :raises RequestError: the session is over, or another server owns it.
        """
        session = self._sessions.get(session_id)
        if session is None or session.is_closing:
            raise RequestError(Code.SESSION_EXPIRED)
        if session.owner is None:
            session.owner = owner
        elif session.owner is not owner:
            raise RequestError(Code.SESSION_MOVED)

    def own(self, session_id: int, owner: object) -> None:
        """Let ``owner`` serve this session from now on."""
        session = self._sessions.get(session_id)
        if session is not None and not session.is_closing:
            session.owner = owner

    def begin_closing(self, session_id: int) -> None:
        """Note that the session's end is proposed: it can be neither used nor taken up any more."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.is_closing = True

    def remove(self, session_id: int) -> None:
        """Its end is committed."""
        self._sessions.pop(session_id, None)

    def has(self, session_id: int) -> bool:
        """Whether this session is alive."""
        session = self._sessions.get(session_id)
        return session is not None and not session.is_closing

    def stop(self) -> None:
        """Forget all sessions, because this server no longer leads."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._sessions = {}

    def _look_at(self, time_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._next_ms = time_ms
        self._timer = self._at(max(0.0, time_ms / 1000 - self._now()), self._look)

    def _look(self) -> None:
        self._timer = None
        now_ms = int(self._now() * 1000 + 1e-6)
        waiting = [one for one in self._sessions.values() if not one.is_closing]
        over = sorted(one.id for one in waiting if one.expires_ms <= now_ms)
        for session_id in over:
            self.begin_closing(session_id)
            self._expire(session_id)
        left = [one.expires_ms for one in self._sessions.values() if not one.is_closing]
        if left and self._timer is None:
            self._look_at(max(min(left), now_ms + 1))
