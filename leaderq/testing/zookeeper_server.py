"""ZooKeeper on demand: one server, or an ensemble; whether it serves, and who leads.

Asked over a plain socket: the answer comes from the server itself, not through a client library
with reconnecting and threads of its own.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from leaderq.errors import ServerFailed
from leaderq.testing.java_server import JavaServer, JavaServerOptions, write_properties
from leaderq.testing.ports import HOST
from leaderq.testing.server import OwnServer, PeerGroup
from leaderq.testing.waiting import eventually

if TYPE_CHECKING:
    from typing_extensions import Unpack


class AskedServer(OwnServer):
    """A ZooKeeper server that answers four-letter words; it serves once it says in which mode."""

    def _answers(self) -> bool:
        return self.mode != ""

    def ask(self, word: str) -> str:
        """The answer to a four-letter word (``srvr``, ``mntr``, ``cons``, ``dump``...).

        :raises ServerFailed: it did not answer.
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

    @property
    def leader(self) -> A:
        """The server that leads now; waits for an election that is going on.

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

    ``settings`` are added to the configuration file, and win. ``jaas`` is the text of a JAAS file
    with a ``Server`` section, and turns SASL on. Both are attributes too, read at each start.
    Writes are forced to disk unless ``settings={"forceSync": "no"}``.
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
                lines[f"server.{member.number}"] = f"{member.address_of('peer')}:{election}"
        options = ["-Dzookeeper.jmx.log4j.disable=true"]
        if self.jaas is not None:
            users = folder / "jaas.conf"
            users.write_text(self.jaas)
            options.append(f"-Djava.security.auth.login.config={users}")
            provider = "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
            lines["authProvider.sasl"] = provider
        file = write_properties(folder / "zoo.cfg", lines | self.settings)
        return [*options, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(file)]


class ZooKeeperEnsemble(LedGroup[ZooKeeperServer]):
    """``size`` servers, serving when each opens sessions. ``options`` are those of each."""

    what = "a ZooKeeper ensemble"
    kind = ZooKeeperServer
    usual_options = {"heap_mb": 192}  # noqa: RUF012 - never changed
