"""ZooKeeper on demand: one server, or an ensemble; whether it serves, and who leads.

A plain socket asks the servers, so the answer comes from the server, not from a client library that
reconnects and has threads.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from leaderq.errors import ServerFailed
from leaderq.testing.java_server import JavaServer, JavaServerOptions, write_properties
from leaderq.testing.ports import HOST
from leaderq.testing.server import OwnServer, PeerGroup
from leaderq.testing.server_links import ServerLink, ServerLinks
from leaderq.testing.waiting import eventually

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AskedServer(OwnServer):
    """A ZooKeeper server that answers four-letter words; it serves when it tells its mode."""

    def _answers(self) -> bool:
        return self.mode != ""

    def ask(self, word: str) -> str:
        """Return the answer to a four-letter word (``srvr``, ``mntr``, ``cons``, ``dump``...).

        :raises ServerFailed: the server did not answer.
        """
        host, _, port = self.address.rpartition(":")
        pieces = []
        try:
            with socket.create_connection((host, int(port)), timeout=2.0) as connection:
                connection.sendall(word.encode())
                while piece := connection.recv(65536):
                    pieces.append(piece)
        except OSError as exc:
            raise ServerFailed(
                f"{self.name} at {self.address} did not answer {word!r}: {exc}"
            ) from exc
        return b"".join(pieces).decode(errors="replace")

    @property
    def mode(self) -> str:
        """``standalone``, ``leader``, ``follower``, or ``""`` while it does not serve."""
        try:
            answer = self.ask("srvr")
        except ServerFailed:
            return ""
        return answer.partition("Mode:")[2].partition("\n")[0].strip()


A = TypeVar("A", bound=AskedServer)


class LedGroup(PeerGroup[A]):
    """ZooKeeper servers that elect a leader among them."""

    is_linked = False
    """Whether the ways between the servers can be stalled and cut."""

    @property
    def leader(self) -> A:
        """The server that leads now; if an election is going on, wait for its end.

        :raises AssertionError: none leads within 30 s (times the patience).
        """
        return eventually(
            lambda: [member for member in self.members if member.mode == "leader"],
            message="one server of the ensemble leads",
        )[0]

    @property
    def followers(self) -> list[A]:
        """The servers that follow now."""
        return [member for member in self.members if member.mode == "follower"]


TICK_MS = 500
# Sessions of 1 s to 60 s, and all kinds of znodes.
SETTINGS = {
    "minSessionTimeout": "1000",
    "maxSessionTimeout": "60000",
    "extendedTypesEnabled": "true",
}


class ZooKeeperServer(AskedServer, JavaServer):
    """One ZooKeeper server, standalone unless an ensemble made it.

    ``settings`` are added to the configuration file, and override it. ``jaas`` is the text of a
    JAAS file with a ``Server`` section, and turns SASL on. Both are also attributes, which are read
    at each start. Writes are forced to disk unless ``settings={"forceSync": "no"}``.
    """

    what = "ZooKeeper"
    jar_set = "zookeeper"
    port_names = ("client", "peer", "election")
    heap_mb = 256

    def __init__(
        self,
        *,
        settings: Mapping[str, str] | None = None,
        jaas: str | None = None,
        **options: Unpack[JavaServerOptions],
    ) -> None:
        super().__init__(options)
        self.settings = dict(settings or {})
        self.jaas = jaas
        self.links: ServerLinks | None = None

    def _prepare(self, folder: Path) -> list[str]:
        data = folder / "data"
        data.mkdir(exist_ok=True)
        lines = {
            "tickTime": str(TICK_MS),
            "dataDir": str(data),
            "clientPort": str(self.port),
            "clientPortAddress": HOST,
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **SETTINGS,
        }
        if not self.is_alone:
            (data / "myid").write_text(f"{self.number}\n")
            lines |= {"initLimit": "20", "syncLimit": "10"}
            for member in self.peers:
                election = member.address_of("election").rpartition(":")[2]
                lines[f"server.{member.number}"] = f"{self._way_to(member)}:{election}"
        options = ["-Dzookeeper.jmx.log4j.disable=true"]
        if self.jaas is not None:
            users = folder / "jaas.conf"
            users.write_text(self.jaas)
            options.append(f"-Djava.security.auth.login.config={users}")
            provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
            lines["authProvider.sasl"] = provider
        file = write_properties(folder / "zoo.cfg", lines | self.settings)
        return [*options, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(file)]

    def _way_to(self, peer: ZooKeeperServer) -> str:
        """The address at which this server reaches the peer port of ``peer``, which may be this
        server.
        """
        if self.links is None or peer is self:
            return peer.address_of("peer")
        return self.links.address(self.number - 1, peer.number - 1)


class ZooKeeperEnsemble(LedGroup[ZooKeeperServer]):
    """``size`` servers; the ensemble serves when each of them opens sessions. Each gets
    ``options``.

    ``linked``: fault proxies stand between the servers, so that :meth:`link` can be used. They cost
    a thread for each pair and direction, and nothing else.
    """

    what = "a ZooKeeper ensemble"
    kind = ZooKeeperServer
    usual_options = {"heap_mb": 192}  # noqa: RUF012 - never changed

    def __init__(
        self, size: int = 3, *, name: str | None = None, linked: bool = False, **options: Any
    ) -> None:
        super().__init__(size, name=name, **options)
        self.is_linked = linked
        self._links: ServerLinks | None = None

    def prepare(self) -> None:
        super().prepare()
        if self.is_linked and self._links is None:
            self._links = ServerLinks([one.address_of("peer") for one in self.members]).start()
        for member in self.members:
            member.links = self._links

    def link(self, one: ZooKeeperServer, other: ZooKeeperServer) -> ServerLink:
        """The way from server ``one`` to server ``other``.

        :raises ServerFailed: the ensemble was not made with ``linked``, or not started.
        """
        if self._links is None:
            raise ServerFailed(f"{self.name} has no links; make it with linked=True and start it")
        return self._links.between(self.members.index(one), self.members.index(other))

    def heal(self) -> None:
        if self._links is not None:
            self._links.heal()
        super().heal()

    def stop(self, *, keep_data: bool = False) -> None:
        super().stop(keep_data=keep_data)
        if self._links is not None and not keep_data:
            self._links.stop()
            self._links = None
