"""Making a client of kafka-python: its options, its connections, TLS, and its errors as leaderq's.

Some of its omissions are mended here (B15, B21, B40, B41; each was met, and has a test).
kafka-python lets a program register a way to make connections under the scheme of a proxy's URL:
:data:`DIRECT` names ours, and no proxy.
"""

from __future__ import annotations

import errno
import logging
import re
import socket as sockets  # a method below must be named socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, TypeVar

from kafka import errors as native
from kafka.net.compat import KafkaNetClient
from kafka.net.inet import KafkaNetSocket
from kafka.net.manager import KafkaConnectionManager
from kafka.net.selector import NetworkSelector

from leaderq.config import KafkaSecurity
from leaderq.errors import ConfigurationError, LeaderqError
from leaderq.kafka.clients import private_api
from leaderq.kafka.clients.client_options import (
    bootstrap_servers,
    connection_table,
    in_kafka_pythons_names,
)
from leaderq.kafka.clients.consumer import FAILURES, Failure, LogTruncated, advice, connecting
from leaderq.kafka.record import Partition

DIRECT = "leaderq://direct"
_OF_LOGINS = (
    " Are protocol, mechanism, user and password right? (Brokers may refuse them by closing the"
    " connection.)"
)
_UNUSABLE = (TypeError, ValueError, AssertionError)
_SAID = re.compile(r"""failed with response .*?error_message=(['"])(.+?)\1,""", re.DOTALL)
"""What the broker says, in the text of an error of kafka-python's admin client."""


def connection_options(
    address: str, security: KafkaSecurity, *, open_timeout_s: float = 10.0
) -> dict[str, Any]:
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers(address),
        "bootstrap_timeout_ms": int(open_timeout_s * 1000),
        **in_kafka_pythons_names(connection_table(security)),
        **security.client_options,
    }
    if security.protocol.startswith("SASL_"):
        if security.mechanism == "OAUTHBEARER" and "sasl_oauth_token_provider" not in options:
            raise ConfigurationError(
                "kafka_mechanism='OAUTHBEARER' needs tokens: give the career client_options with"
                " 'sasl_oauth_token_provider' (client='kafka-python') or 'oauth_cb'"
                " (client='confluent')"
            )
        options.update(
            sasl_mechanism=security.mechanism,
            sasl_plain_username=security.user,
            sasl_plain_password=security.password,
        )
    if security.protocol.endswith("SSL"):
        options["ssl_context"] = tls_context(security)
    return options


def _no_debug_lines(line: logging.LogRecord) -> bool:
    return line.levelno > logging.DEBUG


def quiet_client_logs() -> None:
    """Silence kafka-python's own loggers, unless the program has given ``kafka`` a level: leaderq
    raises or logs what matters.

    The debug lines of two of them contain passwords, and are never let out unless that very logger
    was given a level.
    """
    for name in ("kafka.protocol.parser", "kafka.net.connection"):
        spilling = logging.getLogger(name)
        if spilling.level == logging.NOTSET:
            spilling.addFilter(_no_debug_lines)
    logger = logging.getLogger("kafka")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.CRITICAL)


_AGAIN = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError, InterruptedError)


class _EndAfterData:
    """A socket that reports its end, or its error, one read later, so that the client processes the
    data before it first. It closes itself when nothing refers to it any more.
    """

    _has_given = False

    def __del__(self) -> None:
        # A client that is closed while it connects forgets the socket: the task that would close it
        # never runs again, and whether it or the socket is collected first is chance.
        with suppress(OSError):
            self.close()  # type: ignore[attr-defined]

    def recv(self, bufsize: int = 1024, flags: int = 0) -> bytes:
        given_before, self._has_given = self._has_given, False
        try:
            data: bytes = super().recv(bufsize, flags)  # type: ignore[misc]
        except _AGAIN:
            raise
        except OSError as exc:
            if given_before:
                raise self._later("the error comes after the data") from exc
            raise
        if not data and given_before:
            raise self._later("the end comes after the data")
        self._has_given = bool(data)
        return data

    def _later(self, why: str) -> OSError:
        return BlockingIOError(errno.EAGAIN, why)


class _Socket(_EndAfterData, sockets.socket):
    pass


class _TlsSocket(_EndAfterData, ssl.SSLSocket):
    def do_handshake(self, block: bool = False) -> None:
        try:
            super().do_handshake(block)
        except _AGAIN:
            raise
        except BaseException:
            self.close()
            raise

    def _later(self, why: str) -> OSError:
        return ssl.SSLWantReadError(why)


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


_RUN_S = 20.0
"""How long the client's I/O thread may take for calls without a time-out of their own."""


class _Selector(NetworkSelector):
    """A selector whose calls time out after 20 s, and leave no cycle of frames then (B21)."""

    def run(self, coro: Any, *args: Any) -> Any:
        try:
            return private_api.run_bounded(self, super().run, coro, args, _RUN_S)
        except native.KafkaTimeoutError as exc:
            raise exc.with_traceback(None)  # noqa: B904  (the same error)


class _Manager(KafkaConnectionManager):
    """Remembers why connections failed; a refusal ends the search for a first broker."""

    last_error: BaseException | None = None

    def get_connection(self, node_id: Any, *args: Any, **more: Any) -> Any:
        last = self.last_error
        if last is not None and failure_of(last) is Failure.REFUSED and not self.bootstrapped:
            raise last
        connection = super().get_connection(node_id, *args, **more)
        connection.init_future.add_errback(lambda error: setattr(self, "last_error", error))
        return connection


Client = TypeVar("Client")


def connected(kind: Callable[..., Client], address: str, options: dict[str, Any]) -> Client:
    """Return a connected client of class ``kind``. If this raises, no client is left running."""
    managers: list[_Manager] = []
    clients: list[KafkaNetClient] = []

    def client_of(**settings: Any) -> KafkaNetClient:
        net = _Selector(**settings)
        managers.append(_Manager(net, **settings))
        clients.append(KafkaNetClient(net=net, manager=managers[-1], **settings))
        return clients[-1]

    def remedy() -> str:
        is_login = str(options.get("security_protocol")).startswith("SASL_")
        why = managers[0].last_error if managers else None
        known = None if isinstance(why, native.KafkaTimeoutError) else why
        return advice(known, _OF_LOGINS if is_login else "")

    try:
        with connecting(address, remedy), errors_translated("connecting", address):
            return kind(**options, proxy_url=DIRECT, kafka_client=client_of)
    except BaseException as exc:
        for client in clients:
            client.close()
        if isinstance(exc, _UNUSABLE) or isinstance(exc.__cause__, native.KafkaConfigurationError):
            what = f"kafka-python cannot use an option that it was given: {exc}"
            raise ConfigurationError(what) from exc
        raise


def tls_context(security: KafkaSecurity) -> ssl.SSLContext:
    """Return a context for TLS 1.2 or newer that checks the server's certificate. Raises
    ConfigurationError if a file of ``security`` cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.sslsocket_class = _TlsSocket
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.check_hostname = security.check_hostname
    try:
        if security.ca:
            context.load_verify_locations(security.ca)
        else:
            context.load_default_certs()
    except OSError as exc:
        raise ConfigurationError(
            f"kafka_ca={security.ca!r} cannot be used: {exc}; name a PEM file of certificates"
        ) from exc
    try:
        if security.cert:
            password = security.key_password or ""
            context.load_cert_chain(security.cert, security.key, password=password)
    except OSError as exc:
        raise ConfigurationError(
            f"kafka_cert={security.cert!r} with kafka_key={security.key!r} cannot be used: {exc}; "
            "name PEM files that belong together, and give the key's password if it has one"
        ) from exc
    return context


def failure_of(exc: BaseException) -> Failure:
    if isinstance(exc, native.RetriableError):
        return Failure.AWAY
    code = exc.message if isinstance(exc, native.BrokerResponseError) else None
    return FAILURES.get(code or type(exc).__name__, Failure.OTHER)


def translated(exc: BaseException, doing: str, address: str) -> LeaderqError:
    said = _SAID.search(str(exc))  # else the whole request and its answer
    at = f"{doing} at Kafka {address!r}: {type(exc).__name__}: {said[2] if said else exc}"
    if isinstance(exc, native.LogTruncationError):
        return LogTruncated(at, frozenset(Partition(*where) for where in exc.divergent_offsets))
    return failure_of(exc).error(at)


@contextmanager
def errors_translated(doing: str, address: str) -> Iterator[None]:
    try:
        yield
    except native.KafkaError as exc:
        raise translated(exc, doing, address) from exc
