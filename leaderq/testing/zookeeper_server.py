"""ZooKeeper on demand: one server, or an ensemble; and the questions that tell whether it serves,
and who leads.

Spoken by hand over a socket: it is a few bytes, and the answer comes from the server itself rather
than through a client library with reconnecting and threads of its own.
"""

from __future__ import annotations

import socket
import struct
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from leaderq.errors import ServerFailed
from leaderq.testing.fault_proxy import FaultProxy
from leaderq.testing.java_server import JavaServer, JavaServerOptions
from leaderq.testing.ports import HOST, read_exactly
from leaderq.testing.server import Server, ServerGroup
from leaderq.testing.waiting import eventually

if TYPE_CHECKING:
    from typing_extensions import Unpack

# Protocol, zxid, time-out ms, session, password, read-only.
_CONNECT = struct.pack(">iqiqi16s?", 0, 0, 2000, 0, 16, bytes(16), False)
_CLOSE = struct.pack(">ii", 1, -11)


def opens_session(host: str, port: int, *, timeout_s: float = 3.0) -> bool:
    """Whether the server opens a session (an ensemble does so only with a quorum); the session is
    closed again.
    """
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as connection:
            connection.sendall(struct.pack(">i", len(_CONNECT)) + _CONNECT)
            answer = read_exactly(connection, 4 + 16)
            timeout_ms, session = struct.unpack(">iq", answer[8:20])
            connection.sendall(struct.pack(">i", len(_CLOSE)) + _CLOSE)
            return bool(timeout_ms > 0 and session != 0)
    except OSError:
        return False


def four_letter_word(host: str, port: int, word: str, *, timeout_s: float = 2.0) -> str:
    """The server's answer to ``word`` (``srvr``, ``stat``, ``mntr``, ``cons``...).

    :raises OSError: it could not be asked.
    """
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        connection.sendall(word.encode())
        pieces = []
        while piece := connection.recv(65536):
            pieces.append(piece)
    return b"".join(pieces).decode(errors="replace")


class AskedServer(Server, ABC):
    """A ZooKeeper server that answers four-letter words."""

    def ask(self, word: str) -> str:
        """The answer to a four-letter word (``srvr``, ``mntr``, ``cons``, ``dump``...).

        :raises ServerFailed: it did not answer.
        """
        host, _, port = self.address.rpartition(":")
        try:
            return four_letter_word(host, int(port), word)
        except OSError as exc:
            raise ServerFailed(
                f"{self.name} at {self.address} did not answer {word!r}: {exc}"
            ) from exc

    @property
    def mode(self) -> str:
        """``standalone``, ``leader``, ``follower``, or ``""`` while it does not serve."""
        try:
            answer = self.ask("srvr")
        except ServerFailed:
            return ""
        modes = [
            line.partition(":")[2].strip()
            for line in answer.splitlines()
            if line.startswith("Mode:")
        ]
        return modes[0] if modes else ""


A = TypeVar("A", bound=AskedServer)


class LedGroup(ServerGroup[A]):
    """ZooKeeper servers that elect a leader among them."""

    @property
    def leader(self) -> A:
        """The server that leads now; waits for an election that is going on.

        :raises AssertionError: none leads within 30 s (times the patience).
        """
        leading = eventually(
            lambda: [member for member in self.members if member.mode == "leader"],
            message="one server of the ensemble leads",
        )
        return leading[0]

    @property
    def followers(self) -> list[A]:
        """The servers that follow now."""
        return [member for member in self.members if member.mode == "follower"]


@dataclass(frozen=True)
class Tls:
    """PEM files (or another ``kind`` of key store) for a secure port beside the plain one.

    ``keystore`` holds the server's private key and its certificates; ``truststore`` the authorities
    of clients.
    """

    keystore: Path
    truststore: Path
    password: str = ""
    kind: str = "PEM"
    clients_must_identify: bool = False


def session_settings(tick_ms: int) -> dict[str, str]:
    """By which sessions of 1 s to 60 s can be had, and all kinds of znodes."""
    shortest = str(min(1000, 2 * tick_ms))
    return {
        "minSessionTimeout": shortest,
        "maxSessionTimeout": "60000",
        "extendedTypesEnabled": "true",
    }


class ZooKeeperServer(JavaServer, AskedServer):
    """One ZooKeeper server, standalone unless an ensemble made it.

    ``tick_ms`` is the server's unit of time: sessions end on its borders. Sessions of 1 s to 60 s
    can be had whatever it is. ``settings`` are added to the configuration file, and win. ``jaas``
    is the text of a JAAS file with a ``Server`` section, and turns SASL on. ``tls`` adds a secure
    port (``secure_address``). Writes are forced to disk as in production (``settings={"forceSync":
    "no"}`` for those who would rather be quick).
    """

    what = "ZooKeeper"
    jar_set = "zookeeper"
    port_names = ("client", "secure", "peer", "election")
    heap_mb = 256

    def __init__(
        self,
        *,
        tick_ms: int = 500,
        settings: Mapping[str, str] | None = None,
        jaas: str | None = None,
        tls: Tls | None = None,
        **options: Unpack[JavaServerOptions],
    ) -> None:
        super().__init__(options)
        self.tick_ms = tick_ms
        self._settings = dict(settings or {})
        self._jaas = jaas
        self._tls = tls
        self._members: Sequence[ZooKeeperServer] = ()
        self._ways: dict[ZooKeeperServer, FaultProxy] = {}  # to other members; absent: directly

    @property
    def secure_address(self) -> str:
        """Where TLS clients connect, if ``tls`` was given."""
        return self._port("secure").address

    def _answers(self) -> bool:
        return opens_session(HOST, self.port)

    def _is_alone(self) -> bool:
        return not self._members

    def _prepare(self, folder: Path) -> list[str]:
        data = folder / "data"
        data.mkdir(exist_ok=True)
        lines = {
            **self._basics(data),
            **self._membership(data),
            **self._security(),
            **self._settings,
        }
        file = folder / "zoo.cfg"
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        file.chmod(0o600)
        options = ["-Dzookeeper.jmx.log4j.disable=true"]
        if self._jaas is not None:
            (folder / "jaas.conf").write_text(self._jaas)
            options.append(f"-Djava.security.auth.login.config={folder / 'jaas.conf'}")
        return [*options, "org.apache.zookeeper.server.quorum.QuorumPeerMain", str(file)]

    def _basics(self, data: Path) -> dict[str, str]:
        return {
            "tickTime": str(self.tick_ms),
            "dataDir": str(data),
            "clientPort": str(self.port),
            "clientPortAddress": HOST,
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
            **session_settings(self.tick_ms),
        }

    def _membership(self, data: Path) -> dict[str, str]:
        if not self._members:
            return {}
        (data / "myid").write_text(f"{self._members.index(self) + 1}\n")
        peers = {
            f"server.{number}": f"{self._way_to(member)}:{member._port('election').number}"
            for number, member in enumerate(self._members, start=1)
        }
        return {"initLimit": "20", "syncLimit": "10", **peers}

    def _way_to(self, member: ZooKeeperServer) -> str:
        way = self._ways.get(member)
        return member._port("peer").address if way is None else way.address

    def _security(self) -> dict[str, str]:
        lines: dict[str, str] = {}
        if self._jaas is not None:
            lines["authProvider.sasl"] = (
                "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"
            )
        if self._tls is not None:
            lines |= {
                "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
                "secureClientPort": str(self._port("secure").number),
                "secureClientPortAddress": HOST,
                "ssl.keyStore.location": str(self._tls.keystore),
                "ssl.keyStore.type": self._tls.kind,
                "ssl.keyStore.password": self._tls.password,
                "ssl.trustStore.location": str(self._tls.truststore),
                "ssl.trustStore.type": self._tls.kind,
                "ssl.trustStore.password": self._tls.password,
                "ssl.clientAuth": "need" if self._tls.clients_must_identify else "none",
            }
        return lines


class ZooKeeperEnsemble(LedGroup[ZooKeeperServer]):
    """``size`` ZooKeeper servers that elect a leader among them; serving when each of them opens
    sessions. ``options`` are those of each.

    ``isolable``: the first member is a follower, and fault proxies stand between it and the others,
    so that :meth:`isolate` can cut it off while its clients still reach it.
    """

    what = "a ZooKeeper ensemble"

    def __init__(
        self,
        size: int = 3,
        *,
        isolable: bool = False,
        name: str = "zookeeper",
        **options: Any,
    ) -> None:
        members = [
            ZooKeeperServer(**{"heap_mb": 192, **options, "name": f"{name}-{number}"})
            for number in range(1, size + 1)
        ]
        super().__init__(name, members)
        self._isolable = isolable
        for member in members:
            member._members = members

    def prepare(self) -> None:
        for member in self.members:
            member.lease_ports()
        for other in self.members[1:] if self._isolable else []:
            way = FaultProxy(other._port("peer").address, framed=False)
            self.members[0]._ways.setdefault(other, way).start()

    def waves(self) -> Sequence[Sequence[ZooKeeperServer]]:
        # The one that starts last follows. It would disturb an election: its proxies accept
        # connections before a leader does.
        return [self.members[1:], self.members[:1]] if self._isolable else [self.members]

    def isolate(self) -> ZooKeeperServer:
        """Cut the first member off from the others until :meth:`heal`; returns it.

        Only in an ``isolable`` ensemble. It goes on answering its clients' pings and reads until
        ``syncLimit`` ticks have passed.
        """
        for way in self.members[0]._ways.values():
            way.black_hole()
        return self.members[0]

    def heal(self) -> None:
        for way in self.members[0]._ways.values():
            way.heal()
        super().heal()

    def stop(self, *, keep_data: bool = False) -> None:
        super().stop(keep_data=keep_data)
        if not keep_data:
            for way in self.members[0]._ways.values():
                way.stop()
            self.members[0]._ways.clear()
