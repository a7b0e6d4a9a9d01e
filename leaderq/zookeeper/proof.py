"""Until when a session certainly lives, as far as its client can prove it by its clock (pure).

ZooKeeper ends a session T after the leader of the ensemble last *knew* that its client lives, and a
server tells the leader only with its answers to pings, which come every half tick. An acknowledged
write does not prove that the leader knows: the server may not have told the leader yet that it
heard the client. So a session is proven by three requests of its client, i, j and k:

1. The server had heard i by the time at which i was answered.
2. j is sent half a tick after that (:attr:`Shares.known_s`). So the leader has sent a ping in
   between, and the server gets that ping before it gets the leader's answer to j.
3. The server answers that ping before it passes on the answer to j. This answer, or one before it,
   names every session that the server had heard by the time at which i was answered.
4. k is sent after j was answered. So it reaches the leader after the answer to the ping.
5. A quorum has agreed to k: so that leader led then. A later leader gives every session a new T.

When k is answered, the session therefore lives until T after i was *sent*. j is a ``sync``, which
costs the servers nothing; k is a write that changes nothing. Any request, also a ping of the
client, can be i. A new connection can be i without the wait of half a tick, because the server
asked the leader when it was made. So an idle session can be proven within two round trips.

``tests/model/lease.py`` searches all orders in which this can happen, and shows what fails without
each of these steps; docs/design/election.md names the assumptions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property, lru_cache

NEVER = float("-inf")


@dataclass(frozen=True)
class Shares:
    """The session time-out ``timeout_s`` (T), and every share of T that some part of leaderq waits
    for. All are seconds. ``tick_s``: the tick of the servers if it is known; else the longest that
    their default allows, T/2.

    ::

        i sent                           trusted     gone       T: the session may end
        |---- known ----| j, k answered     |          |        |
        |<----------- 19/24 T ------------->|<- T/8 -->|<T/12 ->|

    Between *trusted* and *gone* everything that relies on the session ends by itself, or is killed,
    in three steps of ``grace_s``. The last twelfth is for clocks that run at different rates (1/24)
    and for the guardian's way to the processes that it kills (1/24).
    """

    timeout_s: float
    tick_s: float | None = None

    @cached_property
    def known_s(self) -> float:
        """How long after a server has heard from a client it is certain that the news is on its way
        to the leader: half a tick, and what our clock may gain in that time.
        """
        tick_s = self.timeout_s / 2 if self.tick_s is None else self.tick_s
        return tick_s / 2 * 25 / 24

    @cached_property
    def beat_s(self) -> float:
        """The time from one proof to the next, while somebody relies on the session."""
        return self.timeout_s / 7

    @cached_property
    def trusted_s(self) -> float:
        """How long a session is relied on, counted from when the proven request was sent."""
        return self.timeout_s * 19 / 24

    @property
    def late_s(self) -> float:
        """When the lack of a newer proof becomes suspicious, counted from when the proven request
        was sent: T/6 after a newer proof was due.
        """
        due_s = self.known_s + 2 * self.beat_s
        return min(due_s + self.timeout_s / 6, self.trusted_s - self.grace_s)

    @cached_property
    def gone_s(self) -> float:
        """When everything that relies on the session must have stopped, counted from when the
        proven request was sent.
        """
        return self.timeout_s * 11 / 12

    @cached_property
    def answer_s(self) -> float:
        """How long to wait for an answer before another server is asked."""
        return self.timeout_s / 3

    @cached_property
    def silent_s(self) -> float:
        """How long a server may be silent: a third of T is left to reach another one."""
        return self.timeout_s * 2 / 3

    @property
    def handover_s(self) -> float:
        """How long a process without a guardian may go on after it has lost its leadership: less
        than the 5T/24 that are left of T, more than the T/8 that a guardian waits.
        """
        return self.timeout_s / 6

    @property
    def strict_s(self) -> float:
        """How long a leader waits after an unclean end if it does not rely on the proof alone
        (``strict``): as if the rates of two clocks differed by half.
        """
        return self.timeout_s / 2

    @cached_property
    def grace_s(self) -> float:
        """The length of each of the three steps in which the guardian ends a worker."""
        return self.timeout_s / 24


shares_of = lru_cache(maxsize=64)(Shares)
"""The shares of a time-out, made once."""


@dataclass(frozen=True, slots=True)
class Proof:
    """Says that the leader of the ensemble knows the session ``session`` to have lived at
    ``known_s`` or later. ``shares`` are those of the session time-out at that time. Times are
    seconds of :func:`leaderq.now_s`.
    """

    session: int | None
    shares: Shares
    known_s: float = NEVER
    trusted_until_s: float = field(init=False, compare=False)
    late_s: float = field(init=False, compare=False)

    def __post_init__(self) -> None:  # both are asked for with every item that a consumer begins
        object.__setattr__(self, "trusted_until_s", self.known_s + self.shares.trusted_s)
        object.__setattr__(self, "late_s", self.known_s + self.shares.late_s)

    @property
    def gone_s(self) -> float:
        return self.known_s + self.shares.gone_s

    def granted(self, shares: Shares) -> Proof:
        """This proof under ``shares``, those of a new connection: a shorter time-out counts at
        once, a longer one does not change the proof.
        """
        if shares.timeout_s >= self.shares.timeout_s:
            return self
        return Proof(self.session, shares, self.known_s)


class Echoes:
    """Notes when the requests of one connection were sent, and which are answered. An answer proves
    that the server heard from us after the request was sent.

    The connection's thread reports what was sent and read; any thread may ask :meth:`newest_s`.
    ``began_s``: when the successful attempt to connect began.
    """

    __slots__ = ("_asked", "_heard", "_sent", "_timeout_s")

    def __init__(self, began_s: float, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._sent = 0
        self._asked: tuple[int, float] | None = None
        # Of each the time of sending and of the answer. The connection itself is known at once.
        self._heard: tuple[tuple[float, float], ...] = ((began_s, NEVER),)

    def sent(self, now_s: float, count: int = 1) -> None:
        """Note that ``count`` requests are sent now."""
        self._sent += count
        if self._asked is None:
            self._asked = (self._sent, now_s)

    def read(self, now_s: float, outstanding: int) -> None:
        """Note that an answer was read at ``now_s``, and that ``outstanding`` answers are still to
        come. A server hears requests in their order.
        """
        if self._asked is None or self._sent - outstanding < self._asked[0]:
            return
        sent_s, self._asked = self._asked[1], None
        heard = self._heard
        if len(heard) > 1 and sent_s - heard[-2][0] < self._timeout_s / 24:
            heard = heard[:-1]  # of those within T/24 the first and the last will do
        while heard and heard[0][0] <= now_s - self._timeout_s:
            heard = heard[1:]
        self._heard = (*heard, (sent_s, now_s))

    def newest_s(self, before_s: float) -> float:
        """When the newest request was sent that was answered by ``before_s``."""
        for sent_s, answered_s in reversed(self._heard):
            if answered_s <= before_s:
                return sent_s
        return NEVER
