"""A simulated ZooKeeper, one server or several, which does only what its callers make it do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from leaderq.testing.simulation.ensemble.alone import Alone
from leaderq.testing.simulation.ensemble.leading import Leader
from leaderq.testing.simulation.ensemble.messages import Hello
from leaderq.testing.simulation.ensemble.quorum import Quorum
from leaderq.testing.simulation.ensemble.server import Deliver, ServerEnd, SimulatedServer
from leaderq.testing.simulation.ensemble.settings import EnsembleSettings
from leaderq.zookeeper.wire import MAX_REQUEST_BYTES


class Ensemble:
    """A ZooKeeper ensemble without threads, sockets, clocks or chance of its own.

    ``now()`` is the servers' own clock in seconds; ``at(delay_s, act)`` starts a timer on it and
    returns an object with ``cancel()``; timers of one moment must go off in the order in which they
    were started. ``delay(what)`` is the time in seconds that something takes: between two servers
    a "request", "proposal", "ack", "commit", "ping" or the "end" of a connection; at the leader the
    "log"; for a server without a leader an "election". ``leader`` leads at first, by default the
    last one; ``sync_limit`` is in ticks. Session time-outs are limited to 2 to 20 ticks unless said
    otherwise. ``wall_ms()`` is the calendar time that ends up in ``ctime`` and ``mtime``.

    *Guarantees:* the same calls in the same order, with the same answers from what is passed in,
    lead to the same history. What a client is told is what real servers of this ``version`` would
    tell: ``tests/integration/zookeeper/test_simulated_ensemble.py`` compares them.
    *Not guaranteed:* four-letter words, quotas, containers, znodes with a time to live, SASL,
    reconfiguration and observers: leaderq uses none of these.
    """

    def __init__(
        self,
        *,
        now: Callable[[], float],
        at: Callable[[float, Callable[[], None]], Any],
        delay: Callable[[str], float],
        servers: int = 1,
        leader: int | None = None,
        tick_s: float = 0.5,
        min_session_timeout_s: float | None = None,
        max_session_timeout_s: float | None = None,
        sync_limit: int = 10,
        version: str = "3.9.5",
        max_request_bytes: int = MAX_REQUEST_BYTES,
        wall_ms: Callable[[], int] | None = None,
    ) -> None:
        tick_ms = int(tick_s * 1000)
        least_s, most_s = min_session_timeout_s, max_session_timeout_s
        self.settings = EnsembleSettings(
            now=now,
            at=at,
            delay=delay,
            wall_ms=wall_ms or (lambda: int(now() * 1000)),
            tick_ms=tick_ms,
            min_timeout_ms=2 * tick_ms if least_s is None else int(least_s * 1000),
            max_timeout_ms=20 * tick_ms if most_s is None else int(most_s * 1000),
            sync_limit=sync_limit,
            version=tuple(int(part) for part in version.split(".")),
            max_request_bytes=max_request_bytes,
        )
        self._sessions_made = 0
        self.servers = [
            SimulatedServer(number, self.settings, self._new_session_id)
            for number in range(servers)
        ]
        self._quorum: Quorum | None = None
        if servers == 1:
            self.servers[0].role = Alone(self.servers[0])
        else:
            self._quorum = Quorum(self.servers, servers - 1 if leader is None else leader)

    def _new_session_id(self, server: int) -> int:
        self._sessions_made += 1
        return (server + 1) << 56 | 0x10000 + self._sessions_made

    # -- clients -----------------------------------------------------------------------------------

    def connect(self, server: int, hello: Hello, deliver: Deliver) -> ServerEnd | None:
        """Open a connection to a server; ``None`` if it is down, which a client learns at once.

        ``deliver`` is called with ``Connected`` or ``Refused``, then with ``ServerAnswer`` and
        ``ServerEvent``, in order, and at last with ``Hungup`` if the server closes the connection.
        """
        there = self.servers[server]
        return there.connect(hello, deliver) if there.is_up else None

    def expire(self, session_id: int) -> None:
        """End a session now, as if nobody had touched it for its whole time-out."""
        for server in self.servers:
            role = server.role
            if isinstance(role, (Alone, Leader)):
                server.enter(role.end_session, session_id)

    @property
    def leader(self) -> int | None:
        """The server that leads and believes that it has a quorum; ``None`` during an election."""
        if self._quorum is None:
            return 0 if self.servers[0].is_up else None
        leaders = self._quorum.leaders()
        return leaders[0].server.number if leaders else None

    def is_serving(self, server: int) -> bool:
        """Whether this server is up, and is alone or believes that it has a leader."""
        return self.servers[server].is_up and self.servers[server].role is not None

    # -- faults ------------------------------------------------------------------------------------

    def stop(self, server: int) -> None:
        """Kill a server: its connections are closed, and its log is kept."""
        there = self.servers[server]
        if not there.is_up:
            return
        there.is_up = there.is_frozen = False
        there.drop_inputs()
        there.hang_up_on_all()
        if self._quorum is not None:
            self._quorum.stopped(there)
        elif isinstance(there.role, Alone):
            there.role.close()
            there.role = None

    def start(self, server: int) -> None:
        """Start a server that was stopped. If it is alone, it serves at once, and all sessions get
        their full time-out; in an ensemble it first looks for a leader.
        """
        there = self.servers[server]
        if there.is_up:
            return
        there.is_up = True
        if self._quorum is None:
            there.role = Alone(there)
        else:
            self._quorum.wake()

    def freeze(self, server: int) -> None:
        """Let a server stand still; its clock continues, and its connections stay open."""
        self.servers[server].freeze()

    def thaw(self, server: int) -> None:
        """Let a frozen server continue; it first takes in everything that has come meanwhile."""
        self.servers[server].thaw()
        if self._quorum is not None:
            self._quorum.wake()

    def cut(self, one: int, other: int) -> None:
        """Cut two servers off from each other; their connections to clients stay."""
        if self._quorum is not None:
            self._quorum.cut(one, other)

    def stall(self, one: int, other: int) -> None:
        """Hold back what the leader sends to a follower: one of the two is the leader. What the
        follower sends still arrives.
        """
        if self._quorum is not None:
            self._quorum.stall(one, other)

    def heal(self, one: int, other: int) -> None:
        """Undo :meth:`cut` or :meth:`stall`: what was sent meanwhile arrives now."""
        if self._quorum is not None:
            self._quorum.heal(one, other)

    def elect(self, server: int) -> None:
        """Make the leader give up now; ``server`` wins the election unless its log is too old."""
        if self._quorum is not None:
            self._quorum.prefer(server)
            for leader in self._quorum.leaders()[:1]:
                leader.server.enter(self._quorum.leave, leader.server)
