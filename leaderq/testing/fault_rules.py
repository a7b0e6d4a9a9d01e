"""Which requests are lost, and which replies lost, held or falsified. Pure.

Used by the proxy's thread only, except that all threads may read ``dropped``.
"""

from __future__ import annotations

from collections.abc import Callable

from leaderq.testing.fault_lane import Judge, Verdict

Request = Callable[[bytes], bool]
ReplyId = tuple[object, bytes]  # the connection, and the bytes that the reply begins with


class ReplyRules:
    """At most one rule of each kind, for all connections.

    A new rule takes the place of the old one of its kind.
    """

    def __init__(self) -> None:
        self.dropped = 0
        self.forget()

    @property
    def are_armed(self) -> bool:
        """Whether frames must be looked at."""
        losing = self._left > 0 or any((self._wanted, self._request, self._awaiting))
        return losing or any((self._unheard, self._hold, self._lag, self._stale))

    def forget(self) -> None:
        """Lose, hold and falsify nothing any more."""
        self._forget_losses()
        self._unheard: Request | None = None
        self._hold: Request | None = None
        self._held: set[ReplyId] = set()
        self._holding: set[object] = set()  # connections of which a reply is held
        self._lag: Request | None = None
        self._first: ReplyId | None = None
        self._past: bytes | None = None
        self._stale: ReplyId | None = None

    def _forget_losses(self) -> None:
        self._left = 0
        self._cut = True
        self._wanted: Callable[[bytes], bool] | None = None
        self._request: Request | None = None
        self._id_at = 0
        self._awaiting: ReplyId | None = None  # of the reply to lose

    def drop(self, which: int | Callable[[bytes], bool], *, cut: bool = True) -> None:
        """Lose the next ``which`` replies, or the first that ``which`` is true of."""
        self._forget_losses()
        self._cut = cut
        if callable(which):
            self._wanted = which
        else:
            self._left = which

    def drop_reply_to(self, request: Request, id_at: int) -> None:
        """Lose the reply to the first request that ``request`` is true of."""
        self._forget_losses()
        self._request, self._id_at = request, id_at

    def drop_requests(self, request: Request) -> None:
        """Lose all requests that ``request`` is true of."""
        self._unheard = request

    def hold_replies_to(self, request: Request) -> None:
        """Hold the replies to all requests that ``request`` is true of, and those behind them."""
        self._hold = request

    def answer_from_the_past(self, request: Request) -> None:
        """Answer the second such request as the first one was."""
        self._lag, self._first, self._past, self._stale = request, None, None, None

    def for_connection(self) -> tuple[Judge, Judge]:
        """The judges of one connection's requests and replies."""
        connection = object()

        def judge_request(body: bytes) -> Verdict:
            if self._unheard is not None and self._unheard(body):
                return Verdict.LOSE_AND_CUT
            if self._request is not None and self._request(body):
                self._awaiting = (connection, body[self._id_at : self._id_at + 4])
                self._request = None
            if self._hold is not None and self._hold(body):
                self._held.add((connection, body[:4]))
            if self._lag is not None and self._lag(body):
                self._note_lag((connection, body[:4]))
            return Verdict.PASS

        def judge_reply(body: bytes) -> Verdict | bytes:
            reply = (connection, body[:4])
            if self._is_lost(reply, body):
                return Verdict.LOSE_AND_CUT if self._cut and not self._left else Verdict.LOSE
            if self._is_held(reply):
                return Verdict.HOLD
            return self._as_of_old(reply, body) or Verdict.PASS

        return judge_request, judge_reply

    def _is_lost(self, reply: ReplyId, body: bytes) -> bool:
        if self._left > 0:
            self._left -= 1
        elif (self._wanted is not None and self._wanted(body)) or self._awaiting == reply:
            self._wanted = self._awaiting = None
        else:
            return False
        self.dropped += 1
        return True

    def _is_held(self, reply: ReplyId) -> bool:
        if reply in self._held:
            self._holding.add(reply[0])
        # A ZooKeeper server answers in order, so what comes behind a held reply waits as well.
        # Pings and watch events are not answers, and have negative numbers.
        return reply[0] in self._holding and reply[1][0] < 0x80

    def _note_lag(self, reply: ReplyId) -> None:
        if self._past is None:
            self._first = reply
        else:
            self._lag, self._stale = None, reply

    def _as_of_old(self, reply: ReplyId, body: bytes) -> bytes | None:
        if reply == self._first:
            self._first, self._past = None, body
        elif reply == self._stale and self._past is not None:
            old, self._stale, self._past = self._past, None, None
            return body[:4] + old[4:]
        return None
