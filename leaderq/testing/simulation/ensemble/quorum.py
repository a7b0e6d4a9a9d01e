"""Decides which server leads: how servers find each other, and what happens to their logs.

A server without a leader *looks*, and serves nobody. After the time of an election, it joins a
leader that it reaches and that has a quorum. If there is none, a quorum of servers that look elects
the one with the newest log. What the elected server has logged is committed; what others have
logged in addition is dropped.

Not modelled: the messages of an election. An election takes one time, drawn for each server that
looks, and its outcome is decided at one moment.
"""

from __future__ import annotations

from collections.abc import Sequence

from leaderq.testing.simulation.ensemble.leading import Follower, Leader
from leaderq.testing.simulation.ensemble.server import SimulatedServer
from leaderq.testing.simulation.ensemble.streams import PeerLink


class Quorum:
    """The servers of one ensemble, and the connections between them."""

    def __init__(self, servers: Sequence[SimulatedServer], leader: int) -> None:
        self._servers = servers
        self._needed = len(servers) // 2 + 1
        self._cuts: set[tuple[int, int]] = set()
        self._links: dict[tuple[int, int], PeerLink] = {}
        self._preferred = leader
        self._form(servers[leader], servers)

    def leaders(self) -> list[Leader]:
        """The servers that lead and believe that they have a quorum, the newest leader first. An
        old leader may not have noticed yet that the others have given it up.
        """
        roles = [server.role for server in self._servers]
        found = [one for one in roles if isinstance(one, Leader) and one.has_quorum]
        return sorted(found, key=lambda leader: -leader.server.epoch)

    # -- faults ------------------------------------------------------------------------------------

    def are_connected(self, one: SimulatedServer, other: SimulatedServer) -> bool:
        """Whether messages pass between these two."""
        return _pair(one.number, other.number) not in self._cuts

    def cut(self, one: int, other: int) -> None:
        """Let no message between these two arrive from now on."""
        pair = _pair(one, other)
        self._cuts.add(pair)
        if pair in self._links:
            self._links[pair].cut()

    def stall(self, one: int, other: int) -> None:
        """Of these two servers, let nothing arrive at the follower until they are healed."""
        pair = _pair(one, other)
        self._cuts.add(pair)
        if pair in self._links:
            self._links[pair].cut(only_down=True)

    def heal(self, one: int, other: int) -> None:
        """Let messages between these two arrive again, including those sent meanwhile."""
        pair = _pair(one, other)
        if pair in self._cuts:
            self._cuts.discard(pair)
            if pair in self._links:
                self._links[pair].heal()
            self.wake()

    def stopped(self, server: SimulatedServer) -> None:
        """Close the connections that a killed server had as the leader or as a follower."""
        role, server.role = server.role, None
        if isinstance(role, (Leader, Follower)):
            role.close()

    def leave(self, server: SimulatedServer) -> None:
        """Let a server that has no leader or no quorum any more hang up on all, and look."""
        role, server.role = server.role, None
        server.hang_up_on_all()
        if isinstance(role, (Leader, Follower)):
            role.close()
        self.wake()

    def prefer(self, server: int) -> None:
        """Let this server win against servers whose logs are as new as its own."""
        self._preferred = server

    # -- elections ---------------------------------------------------------------------------------

    def wake(self) -> None:
        """Let each server that looks try again after its election time, because something has
        changed.
        """
        for server in self._servers:
            if server.is_up and server.role is None:
                delay_s = server.settings.delay("election")
                server.at(delay_s, lambda server=server: self._try(server))  # type: ignore[misc]

    def _try(self, server: SimulatedServer) -> None:
        if server.role is not None or not server.is_up:
            return
        for leader in self.leaders():
            head = leader.server
            is_usable = self.are_connected(server, head) and head.epoch >= server.epoch
            if is_usable and not head.is_frozen:
                self._join(server, leader)
                return
        looking = [one for one in self._servers if self._looks(one)]
        for winner in sorted(looking, key=self._vote, reverse=True):
            voters = [one for one in looking if self.are_connected(one, winner)]
            if len(voters) >= self._needed:
                if server in voters:
                    self._form(winner, voters)
                return

    def _looks(self, server: SimulatedServer) -> bool:
        return server.is_up and not server.is_frozen and server.role is None

    def _vote(self, server: SimulatedServer) -> tuple[int, int, bool, int]:
        zxid = server.log[-1].zxid if server.log else server.last_zxid
        return server.epoch, zxid, server.number == self._preferred, server.number

    def _form(self, winner: SimulatedServer, voters: Sequence[SimulatedServer]) -> None:
        while winner.log:
            winner.apply(winner.log.pop(0))
        winner.epoch = max(server.epoch for server in voters) + 1
        leader = Leader(winner, epoch=winner.epoch, quorum=self._needed, leave=self.leave)
        winner.role = leader
        for server in voters:
            if server is not winner:
                self._join(server, leader)
        self.wake()

    def _join(self, server: SimulatedServer, leader: Leader) -> None:
        head = leader.server
        server.log.clear()
        if server.last_zxid != head.last_zxid:
            server.tree = head.tree.copy()
            server.sessions = head.sessions.copy()
            server.last_zxid = head.last_zxid
        server.epoch = head.epoch
        pair = _pair(server.number, head.number)
        link = self._links[pair] = PeerLink(server.settings, head.enter, server.enter)
        follower = Follower(server, link, self.leave)
        server.role = follower
        leader.welcome(follower, server, link)


def _pair(one: int, other: int) -> tuple[int, int]:
    return (one, other) if one < other else (other, one)
