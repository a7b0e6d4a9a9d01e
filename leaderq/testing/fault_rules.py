"""Which replies are lost. Pure; used by the proxy's thread only, except that ``dropped`` may be read by all."""

from __future__ import annotations

from collections.abc import Callable

from leaderq.testing.fault_lane import Judge, Verdict


class ReplyRules:
    """At most one rule at a time for the replies of all connections; a new one takes the place of the old one."""

    def __init__(self) -> None:
        self.dropped = 0
        self.forget()

    @property
    def are_armed(self) -> bool:
        """Whether frames must be looked at."""
        return self._left > 0 or any((self._wanted, self._request, self._awaiting))

    def forget(self) -> None:
        """Lose nothing any more."""
        self._left = 0
        self._wanted: Callable[[bytes], bool] | None = None
        self._request: Callable[[bytes], bool] | None = None
        self._id_at = 0
        self._awaiting: tuple[object, bytes] | None = None  # the connection, and what its lost reply will begin with

    def drop(self, which: int | Callable[[bytes], bool]) -> None:
        """Lose the next ``which`` replies, or the first that ``which`` is true of."""
        self.forget()
        if callable(which):
            self._wanted = which
        else:
            self._left = which

    def drop_reply_to(self, request: Callable[[bytes], bool], id_at: int) -> None:
        """Lose the reply to the first request that ``request`` is true of."""
        self.forget()
        self._request, self._id_at = request, id_at

    def for_connection(self) -> tuple[Judge, Judge]:
        """The judges of one connection's requests and replies."""
        connection = object()

        def judge_request(body: bytes) -> Verdict:
            if self._request is not None and self._request(body):
                self._awaiting = (connection, body[self._id_at : self._id_at + 4])
                self._request = None
            return Verdict.PASS

        def judge_reply(body: bytes) -> Verdict:
            if self._left > 0:
                self._left -= 1
                self.dropped += 1
                return Verdict.LOSE if self._left else Verdict.LOSE_AND_CUT
            is_wanted = self._wanted is not None and self._wanted(body)
            if is_wanted or self._awaiting == (connection, body[:4]):
                self._wanted = self._awaiting = None
                self.dropped += 1
                return Verdict.LOSE_AND_CUT
            return Verdict.PASS

        return judge_request, judge_reply
