"""Making a kafka-python client, with some of its omissions mended (3.0.12; each was met, and has a
test).

* A client whose constructor fails leaves its IO thread running; with Kafka away that is one more
  thread at each attempt.
* It forgets the socket of each failed attempt to connect, which stays open until the garbage
  collector comes by. kafka-python lets a program register a way to make connections under the
  scheme of a proxy's URL; :data:`DIRECT` names ours, and no proxy.
* It throws away what it has read from a connection that was closed right behind: a broker's "wrong
  password", usually. :class:`_Socket` reports the end of the stream only after the data before it
  was processed. (Over TLS Python makes another socket of it; see :mod:`leaderq.kafka.clients.tls`.)
* A broker's "wrong password" is also only logged while the client looks for its first broker, and
  then reported as "no answer" when the time is up. :class:`_Manager` sees the answer, and stops
  looking.
"""

from __future__ import annotations

import errno
import socket as sockets  # a method below must be named socket
from typing import Any, ClassVar, Protocol, TypeVar

from kafka import errors as native
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from leaderq.clock import now_s
from leaderq.errors import ServersUnreachable
from leaderq.kafka.clients.drain import KafkaAway
from leaderq.kafka.clients.translation import REFUSALS, speaking_leaderq

DIRECT = "leaderq://direct"


class _Socket(sockets.socket):
    _has_given = False

    def recv(self, bufsize: int, flags: int = 0) -> bytes:
        try:
            data = super().recv(bufsize, flags)
        except BlockingIOError:
            self._has_given = False
            raise
        if not data and self._has_given:
            self._has_given = False
            raise BlockingIOError(errno.EAGAIN, "the end comes after the data")
        self._has_given = bool(data)
        return data


class _Direct(KafkaNetSocket):
    SCHEMES: ClassVar[tuple[str, ...]] = ("leaderq",)

    def socket(self, *kind: int) -> sockets.socket:
        return _Socket(*kind)

    async def sock_connect(
        self, net: Any, sock: sockets.socket, sockaddr: Any, timeout_at: float | None = None
    ) -> sockets.socket:
        try:
            return await super().sock_connect(net, sock, sockaddr, timeout_at=timeout_at)
        except BaseException:
            sock.close()
            raise


class _Manager(KafkaConnectionManager):
    """Remembers why connections failed; a refusal ends the search for a first broker."""

    last_error: BaseException | None = None

    def get_connection(self, node_id: Any, *args: Any, **more: Any) -> Any:
        if isinstance(self.last_error, REFUSALS) and not self.bootstrapped:
            raise self.last_error
        connection = super().get_connection(node_id, *args, **more)
        connection.init_future.add_errback(self._remember)
        return connection

    def _remember(self, error: BaseException) -> None:
        self.last_error = error


class _Closable(Protocol):
    def __init__(self, **configs: Any) -> None: ...
    def close(self) -> None: ...


Client = TypeVar("Client", bound=_Closable)


def connected(kind: type[Client], address: str, options: dict[str, Any]) -> Client:
    """A client of class ``kind``, connected.

    Raises :class:`~leaderq.errors.ServersUnreachable`, :class:`~leaderq.errors.AccessRefused` or
    :class:`~leaderq.errors.KafkaError`; nothing is left behind then.
    """
    made: list[_Manager] = []

    def client_of(**settings: Any) -> KafkaNetClient:
        net = NetworkSelector(**settings)
        manager = _Manager(net, **settings)
        made.append(manager)
        client = KafkaNetClient(net=net, manager=manager, **settings)
        clients.append(client)
        return client

    clients: list[KafkaNetClient] = []
    began = now_s()
    try:
        with speaking_leaderq("connecting", address):
            return kind(**options, proxy_url=DIRECT, kafka_client=client_of)
    except BaseException as exc:
        for client in clients:
            client.close()
        if isinstance(exc, KafkaAway):
            why = made[0].last_error if made else None
            asked = str(options.get("security_protocol")).startswith("SASL_")
            raise ServersUnreachable("Kafka", address, waited_s=now_s() - began, remedy=_remedy(why, asked)) from exc
        raise


def _remedy(why: BaseException | None, names_user: bool) -> str:
    question = "is Kafka listening there, and may this host reach it?"
    if names_user:
        question += " Are protocol, mechanism, user and password right? (Brokers may refuse them by closing the connection.)"
    if why is None or isinstance(why, native.KafkaTimeoutError):
        return question
    return f"{question} The last attempt ended with {why}"
