"""Until when a session certainly stands: what a client can prove, from its own clock (pure).

ZooKeeper ends a session T after the leader of the ensemble last *knew* that its client lives, and a
server tells the leader only with its answers to pings, which come every half tick. A write that is
acknowledged says nothing about that: the server may have heard the client long after what it has
told the leader. So a session is proven by three requests of its client, i, j and k:

1. The server had heard i by the time at which i was answered.
2. j is sent half a tick after that (:attr:`Shares.known_s`). So the leader has sent a ping in
   between, which reaches the server before the leader's answer to j does.
3. The server answers that ping before it passes on the answer to j. This answer, or one before it,
   names every session that the server had heard by the time at which i was answered.
4. k is sent after j was answered. So it reaches the leader after the answer to the ping.
5. A quorum has agreed to k: so that leader led then. Leaders after it give every session T anew.

When k is answered, the session therefore lives until T after i was *sent*. j is a ``sync``, which
costs the servers nothing; k is a write that changes nothing. Any request, also a ping of the
client, can be i. A connection that was made is as good as an i that needs no half tick, because the
leader was asked when it was made. So an idle session can be proven within two round trips.

``tests/model/lease.py`` searches all orders in which this can happen, and shows what fails without
each of these steps; docs/design/election.md names the assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

NEVER = float("-inf")


@dataclass(frozen=True, slots=True)
class Shares:
    """The session time-out ``timeout_s`` (T), and every share of it that anything waits for, in
    seconds. ``tick_s``: the tick of the servers if it is known; else the longest that their
    default allows, T/2.

    ::

        i sent                           trusted     gone       T: the session may end
        |---- known ----| j, k answered     |          |        |
        |<----------- 19/24 T ------------->|<- T/8 -->|<T/12 ->|

    From *trusted* to *gone* whatever relies on the session ends by itself, or is killed, in three
    steps of ``grace_s``. The last twelfth is for clocks that run at different rates (1/24) and for
    the guardian's way to the processes that it kills (1/24).
    """

    timeout_s: float
    tick_s: float | None = None

    @property
    def known_s(self) -> float:
        """How long ago a server must have heard from a client for the news to be on its way to the
        leader: half a tick, and what our clock may gain in that time.
        """
        tick_s = self.timeout_s / 2 if self.tick_s is None else self.tick_s
        return tick_s / 2 * 25 / 24

    @property
    def beat_s(self) -> float:
        """From one proof to the next, while somebody relies on them."""
        return self.timeout_s / 7

    @property
    def trusted_s(self) -> float:
        """How long after the proven request was sent a session is relied on."""
        return self.timeout_s * 19 / 24

    @property
    def late_s(self) -> float:
        """How long after the proven request was sent the lack of a newer proof becomes suspicious:
        T/6 after that proof was due.
        """
        due_s = self.known_s + 2 * self.beat_s
        return min(due_s + self.timeout_s / 6, self.trusted_s - self.grace_s)

    @property
    def gone_s(self) -> float:
        """How long after the proven request was sent everything that relies on the session must
        have stopped.
        """
        return self.timeout_s * 11 / 12

    @property
    def answer_s(self) -> float:
        """How long an answer is waited for before somebody else is asked."""
        return self.timeout_s / 3

    @property
    def silent_s(self) -> float:
        """How long a server may be silent: a third is left to reach another one."""
        return self.timeout_s * 2 / 3

    @property
    def handover_s(self) -> float:
        """How long a process without a guardian goes on once its leadership is lost: less than the
        5T/24 that are left to T, more than the T/8 that a guardian waits."""
        return self.timeout_s / 6

    @property
    def strict_s(self) -> float:
        """How long a leader waits after an unclean end if the proof is not enough for it
        (``strict``): as if clocks ran at rates that differ by half.
        """
        return self.timeout_s / 2

    @property
    def grace_s(self) -> float:
        """The step in which the guardian intervenes."""
        return self.timeout_s / 24


shares_of = lru_cache(maxsize=64)(Shares)
"""The shares of a time-out, made once."""


@dataclass(frozen=True, slots=True)
class Proof:
    """The session ``session`` is known to the leader of the ensemble to have lived at ``known_s``
    or later; ``shares`` are those of the session time-out at that time. Times are seconds on
    :func:`leaderq.now_s`."""

    session: int | None
    shares: Shares
    known_s: float = NEVER

    @property
    def trusted_until_s(self) -> float:
        return self.known_s + self.shares.trusted_s

    @property
    def late_s(self) -> float:
        return self.known_s + self.shares.late_s

    @property
    def gone_s(self) -> float:
        return self.known_s + self.shares.gone_s

    def granted(self, shares: Shares) -> Proof:
        """This proof under ``shares``, which a new connection was granted: a shorter time-out
        counts at once, a longer one does not.
        """
        if shares.timeout_s >= self.shares.timeout_s:
            return self
        return Proof(self.session, shares, self.known_s)


class Echoes:
    """Which requests the server of one connection has answered: so what it has heard from us, and
    when.

    The connection's thread tells it what was sent and read; :meth:`newest_s` may be asked from any
    thread. ``began_s``: when the successful attempt to connect began.
    """

    __slots__ = ("_asked", "_heard", "_sent", "_timeout_s")

    def __init__(self, began_s: float, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._sent = 0
        self._asked: tuple[int, float] | None = None
        # Of each the time of sending and of the answer. The connection itself is known at once.
        self._heard: tuple[tuple[float, float], ...] = ((began_s, NEVER),)

    def sent(self, now_s: float, count: int = 1) -> None:
        """So many requests are sent now."""
        self._sent += count
        if self._asked is None:
            self._asked = (self._sent, now_s)

    def read(self, now_s: float, outstanding: int) -> None:
        """An answer was read, and ``outstanding`` answers are still to come. A server hears
        requests in their order.
        """
        if self._asked is None or self._sent - outstanding < self._asked[0]:
            return
        sent_s, self._asked = self._asked[1], None
        heard = self._heard
        if len(heard) > 1 and sent_s - heard[-2][0] < self._timeout_s / 24:
            heard = heard[:-1]  # of those within T/24 the first and the last will do
        useful = [one for one in heard if one[0] > now_s - self._timeout_s]
        self._heard = (*useful, (sent_s, now_s))

    def newest_s(self, before_s: float) -> float:
        """Of the requests that were answered by ``before_s``, when the newest one was sent."""
        return max((sent for sent, answered in self._heard if answered <= before_s), default=NEVER)
