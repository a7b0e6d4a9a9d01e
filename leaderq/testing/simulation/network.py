"""The network between simulated processes and simulated servers.

A connection carries messages in order; each direction has delays of its own. A *cut* holds messages
back as TCP does: nothing is lost while both ends keep the connection, and what was held arrives
when the cut heals. A *reset* breaks a connection: what is under way is lost, and both ends hear of
it. A process that dies closes its connections; a host that is lost says nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter
from typing import Any

from leaderq.testing.simulation.ensemble import Ensemble, Hungup, ServerEnd
from leaderq.testing.simulation.ensemble.streams import Stream
from leaderq.testing.simulation.scheduler import Process, World

_BROKEN = Hungup()


class Connection:
    """One connection of a process to a server, as the process sees it."""

    def __init__(
        self, network: Network, process: Process, server: int, deliver: Callable[[Any], None]
    ) -> None:
        self.process = process
        self.server = server
        self._network = network
        self._deliver = deliver
        self._there = Stream(network.now, network.world.after, network.delay_s)
        self._back = Stream(network.now, network.world.after, network.delay_s)
        self._end: ServerEnd | None = None
        self._is_closed = False
        self._lost_xid: int | None = None
        self._apply_cuts()

    def _apply_cuts(self) -> None:
        there, back = self._network.cuts_of(self.process.host, self.server)
        for stream, is_cut in ((self._there, there), (self._back, back)):
            if is_cut:
                stream.cut()
            elif stream.is_cut:
                stream.heal()

    def hello(self, hello: Any) -> None:
        """Begin a session, or take one up."""
        self._there.send("hello", self._connect, hello)

    def _connect(self, hello: Any) -> None:
        end = self._network.ensemble.connect(self.server, hello, self._answered)
        if end is None:
            self._answered(_BROKEN)
        self._end = end

    def _answered(self, message: Any) -> None:
        """Send ``message`` back; the server calls this."""
        if self._lost_xid is not None and getattr(message, "xid", None) == self._lost_xid:
            self.reset()
            return
        self._back.send("answer", self._deliver, message)

    def send(self, xid: int, request: Any) -> None:
        self._there.send("request", self._arrived, xid, request)

    def _arrived(self, xid: int, request: Any) -> None:
        if request.type in self._network.lost_answers.get(self.process.host, ()):
            del self._network.lost_answers[self.process.host]
            if self._network.world.network() < 0.5:
                self.reset()
                return
            self._lost_xid = xid
        if self._end is not None:
            self._end.send(xid, request)

    def close(self) -> None:
        """Close the process's end; the server hears of it after everything that was sent."""
        self._is_closed = True
        self._back.drop()
        self._there.send("end", self._hang_up)
        self._network.forget(self)

    def _hang_up(self) -> None:
        self._there.drop()
        if self._end is not None:
            self._end.close()

    def reset(self) -> None:
        """Break the connection: what is under way is lost, and both ends hear of it in a moment."""
        self._there.drop()
        self._back.drop()
        self._network.forget(self)
        world = self._network.world
        world.at(self._network.delay_s(), self._hang_up)
        if not self._is_closed:
            world.at(self._network.delay_s(), self._broken)

    def _broken(self) -> None:
        if not self._is_closed:
            self._deliver(_BROKEN)

    def vanish(self) -> None:
        """Lose the host of the process: nothing is sent any more."""
        self._is_closed = True
        self._there.drop()
        self._back.drop()
        self._network.forget(self)


class Network:
    """All connections of a life. ``delay_s()`` draws how long a message takes."""

    def __init__(
        self, world: World, ensemble: Ensemble, *, least_s: float = 0.0002, most_s: float = 0.002
    ) -> None:
        self.world = world
        self.ensemble = ensemble
        self.servers = range(len(ensemble.servers))
        self.now: Callable[[], float] = partial(attrgetter("now_s"), world)
        self.least_s = least_s
        self.most_s = most_s
        self.connections: list[Connection] = []
        self.lost_answers: dict[str, frozenset[int]] = {}
        """By host: the next request of one of these types is lost, or its answer is, and with it
        the connection: the host cannot tell which.
        """
        self._cuts: dict[tuple[str, int], tuple[bool, bool]] = {}

    def delay_s(self, _what: str = "") -> float:
        """Draw a delay: mostly near the least, now and then ten times the most."""
        drawn = self.world.network()
        if drawn > 0.995:
            return self.most_s * (1 + 9 * self.world.network())
        return self.least_s + (self.most_s - self.least_s) * drawn * drawn

    def open(self, process: Process, server: int, deliver: Callable[[Any], None]) -> Connection:
        """Connect ``process`` to ``server``; the scheduler calls ``deliver`` with each message."""
        made = Connection(self, process, server, deliver)
        self.connections.append(made)
        return made

    def server_of(self, process: Process) -> int | None:
        """The server to which the newest connection of ``process`` goes."""
        mine = [one.server for one in self.connections if one.process is process]
        return mine[-1] if mine else None

    def forget(self, connection: Connection) -> None:
        if connection in self.connections:
            self.connections.remove(connection)

    # -- faults ------------------------------------------------------------------------------------

    def cuts_of(self, host: str, server: int) -> tuple[bool, bool]:
        return self._cuts.get((host, server), (False, False))

    def cut(
        self, host: str, server: int | None = None, *, there: bool = True, back: bool = True
    ) -> None:
        """Hold back what ``host`` and ``server`` (``None``: all servers) send to each other."""
        for one in self.servers if server is None else (server,):
            self._cuts[host, one] = (there, back)
        self._apply()

    def heal(self, host: str) -> None:
        """End all cuts of ``host``; what was held back arrives now."""
        for key in [key for key in self._cuts if key[0] == host]:
            del self._cuts[key]
        self._apply()

    def _apply(self) -> None:
        for one in list(self.connections):
            one._apply_cuts()

    def reset(self, process: Process) -> None:
        """Break the connections of ``process``."""
        for one in [one for one in self.connections if one.process is process]:
            one.reset()

    def closed_by_death(self, process: Process) -> None:
        """Close the connections of a process that died, as its system does."""
        for one in [one for one in self.connections if one.process is process]:
            one.close()

    def lose_host(self, host: str) -> None:
        """Lose a host, and all that runs on it."""
        for one in [one for one in self.connections if one.process.host == host]:
            one.vanish()
        for process in self.world.processes:
            if process.host == host:
                process.kill()
