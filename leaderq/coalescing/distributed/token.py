"""The right to work on a key, as a value with an end.

States, each reached once: *current*, *over* (see :class:`TokenEnding`). In between a token may be
*in doubt* and come back: ZooKeeper has not been heard of for 2T/3, and whether the session stands
is unknown.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from leaderq.clock import now_s
from leaderq.coalescing.automaton import EnqueueOutcome
from leaderq.coalescing.distributed.slots import KeyZnodes, SlotHolder
from leaderq.errors import (
    LeaderqError,
    NoNode,
    SessionClosed,
    SessionExpired,
    TokenOver,
    ZooKeeperError,
)
from leaderq.zookeeper import Check, Operation, Session, SessionState


class TokenEnding(Enum):
    """Why a token is over."""

    DECLINED = "it was declined"
    DEQUEUED = "it was dequeued"
    SESSION = "its ZooKeeper session is over"
    EVICTED = "its znode is gone: its session is over, or it was evicted"
    CLOSED = "its coordinator was closed"


class SessionLease:
    """How long this process may believe, without asking, that its session stands, and so nobody
    else has its slots. May be used from any thread.

    The rule of a leader's lease: only an *acknowledged write* proves that the session lives, as of
    when the write was **sent**. The servers end a session no earlier than T after they last heard
    of it, and hear of it at most half a tick late; so nobody else can be the head before 2T/3 after
    the sending (Z6 and Z7 in docs/design/facts.md). A process that was frozen finds the lease over
    at its first look at the clock.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._lock = threading.Lock()
        self._heard: tuple[int, float] = (0, 0.0)

    def heard(self, session_id: int, sent_s: float) -> None:
        """A write sent at ``sent_s`` was acknowledged in this session, or refused by the leader for
        another reason than the session.
        """
        # what is said of a session that is over says nothing about the next
        if session_id != self._session.id:
            return
        with self._lock:
            known, before_s = self._heard
            self._heard = (session_id, max(sent_s, before_s) if known == session_id else sent_s)

    def holds(self, session_id: int) -> bool:
        """Whether this session certainly stands."""
        session = self._session
        heard_id, heard_s = self._heard
        if (
            session.state is SessionState.CLOSED
            or session.id != session_id
            or heard_id != session_id
        ):
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


class DistributedToken:
    """The right to work on one key, if and as long as it is true: ``if token:``. Returned
    by ``enqueue``.

    ``number`` is the fencing number: of two heads of a key, the later has the higher one; store it
    beside the data and refuse lower ones. ``outcome`` is ACCEPT (at once), BLOCK (after waiting) or
    DECLINE. ``ended`` is a :class:`threading.Event`, set when the token is over.

    *Guarantees:* while :attr:`is_current` is ``True`` no other process is the head of the key. Once
    another is, :meth:`write` and :meth:`confirm` raise :class:`~leaderq.errors.TokenOver`, whatever
    this process knows: the servers refuse.
    *Not guaranteed:* that it is still current when :attr:`is_current` has *returned*; only
    :meth:`write`, or a resource that compares ``number``, closes that gap.

    As a context manager it is dequeued at the end of the block.
    """

    def __init__(
        self,
        session: Session,
        znodes: KeyZnodes,
        holder: SlotHolder | None,
        outcome: EnqueueOutcome,
        *,
        lease: SessionLease,
        dequeue: Callable[[DistributedToken], object],
    ) -> None:
        self.key = znodes.key
        self.number = 0 if holder is None else holder.number
        self.outcome = outcome
        self.ended = threading.Event()
        self.holder = holder
        self.owner = threading.get_ident()
        """The thread that asked."""
        self.znodes = znodes
        self._session = session
        self._lease = lease
        self._dequeue = dequeue
        self._ending: TokenEnding | None = None
        self._lock = threading.Lock()
        if holder is None:
            self.end(TokenEnding.DECLINED)

    def __bool__(self) -> bool:
        return self.is_current

    def __enter__(self) -> DistributedToken:
        return self

    def __exit__(self, *error: object) -> None:
        self._dequeue(self)

    def __repr__(self) -> str:
        state = "current" if self.is_current else "over" if self.is_over else "in doubt"
        return f"<DistributedToken {self.number} of {self.key!r}, {state}>"

    @property
    def is_current(self) -> bool:
        """Whether this process is certainly the head; asks nobody, and can come back after
        ``False`` unless :attr:`is_over`.
        """
        holder = self.holder
        return self._ending is None and holder is not None and self._lease.holds(holder.session)

    @property
    def is_over(self) -> bool:
        """Whether it is over for good, as far as this process has heard."""
        return self._ending is not None

    @property
    def ending(self) -> TokenEnding | None:
        """Why it is over; ``None`` if it is not."""
        return self._ending

    @property
    def path(self) -> str:
        """The path of the token's znode, which exists as long as the servers hold it for current;
        never used twice.

        :raises TokenOver: it was declined, and has none.
        """
        if self.holder is None:
            raise self._over(TokenEnding.DECLINED)
        return self.znodes.token(self.holder.token)

    @property
    def fence(self) -> Check:
        """The operation that makes any multi fail once this token is not current, for those who
        build their own.
        """
        return Check(self.path)

    def write(
        self, operations: Sequence[Operation], *, timeout_s: float | None = None
    ) -> list[Any]:
        """Do all of these operations, or none if this token is not current; return one result for
        each. The servers decide.

        :raises TokenOver: it is not current; nothing was written.
        :raises NotConnected: nothing was sent.
        :raises ConnectionLost: whether it was written is
            unknown.
        :raises ZooKeeperError: what ZooKeeper refused; ``index`` counts in ``operations``. Nothing
            was written.
        """
        holder = self.holder
        if self._ending is not None or holder is None:
            raise self._over(self._ending or TokenEnding.DECLINED)
        sent_s = now_s()
        try:
            results = self._session.multi([self.fence, *operations], timeout_s=timeout_s)
        except (SessionExpired, SessionClosed) as exc:
            raise self._over(TokenEnding.SESSION) from exc
        except ZooKeeperError as exc:
            if isinstance(exc, NoNode) and exc.index == 0:
                raise self._over(TokenEnding.EVICTED) from exc
            if exc.index is not None:
                exc.index -= 1  # the caller does not count our check
            raise
        self._lease.heard(holder.session, sent_s)
        return results[1:]

    def confirm(self, *, timeout_s: float | None = None) -> None:
        """Ask the servers; return if this token was current at a moment after the call. Errors as
        :meth:`write`."""
        self.write([], timeout_s=timeout_s)

    def end(self, ending: TokenEnding) -> bool:
        """End it; return whether it was not over before. For its coordinator."""
        with self._lock:
            if self._ending is not None:
                return False
            self._ending = ending
        self.ended.set()
        return True

    def _over(self, ending: TokenEnding) -> TokenOver:
        self.end(ending)
        return TokenOver(self.key, number=self.number, reason=(self._ending or ending).value)
