"""Every private part of kazoo 2.11 that leaderq relies on, and why; no other file touches one.

kazoo has no public way to do what is done here. Three things keep an upgrade one file's work:

* what is read or set stands below as a function each;
* what is overridden is listed in :data:`HOOKS`;
* the functions of kazoo whose inner working we count on are listed in :data:`RELIED_ON`. A test
  compares their source with the one that was read when this was written, and fails if it changed:
  read the new source, then its hooks here, then note the new hash in the test.
"""

from __future__ import annotations

import threading
from collections import deque
from types import MappingProxyType
from typing import Any, Final

from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from kazoo.retry import KazooRetry

HOOKS: Final = MappingProxyType(
    {
        "_call": "queues a request, connected or not, and may block; ours refuses or returns",
        "_session_callback": "the only place where kazoo says a state before it acts on it",
        "_expand_client_hosts": "resolves names; says that an attempt begins",
        "_connect": "one attempt; says when connecting begins and has succeeded",
        "_invoke": "the handshake's answer holds the granted time-out, which kazoo does not keep",
        "_write": "the only way to bound a write",
        "_read": "the only way to bound a read, and to read all that has arrived",
        "_read_socket": "one reply; where an answer counts as a sign of life",
        "_send_request": "sends one request a call; ours sends all that is queued",
        "_send_ping": "where a ping counts as something that must be answered",
        "_read_watch_event": "kazoo drops the events of persistent watches",
    }
)
"""The private methods of kazoo that leaderq overrides, each with the reason."""

RELIED_ON: Final = MappingProxyType(
    {
        KazooClient: """__init__ start_async _safe_close _call _session_callback _make_state_change
            _notify_pending _reset _reset_watchers""",
        ConnectionHandler: """start close zk_loop _expand_client_hosts _connect_loop
            _connect_attempt _connect _authenticate_with_sasl _invoke _submit _write _read
            _read_header _read_socket _read_response _read_watch_event _send_request _send_ping""",
        SequentialThreadingHandler: "dispatch_callback",
        KazooRetry: "__call__",
    }
)
"""The functions of kazoo that we call, override or reason about, by class."""


def use_connection(client: KazooClient, connection: ConnectionHandler) -> None:
    """Let ``client`` connect through ``connection``; kazoo builds its own and takes no other."""
    client._connection = connection


def connection_thread(connection: ConnectionHandler) -> threading.Thread | None:
    """The thread that alone reads and writes; waiting for an answer on it would last forever."""
    return connection._connection_routine


def server_socket(connection: ConnectionHandler) -> Any:
    """The socket to the server, or ``None``: to read all that has come, and to break it."""
    return connection._socket


def request_queue(client: KazooClient) -> deque[tuple[Any, Any]]:
    """Requests not sent yet, with their replies. kazoo replaces it when a session ends."""
    return client._queue


def requests_in_flight(client: KazooClient) -> deque[tuple[Any, Any, int]]:
    """Requests sent and not answered, with reply and xid. kazoo replaces it when a session ends."""
    return client._pending


def has_one_shot_watch(client: Any, path: str) -> bool:
    """Whether kazoo has somebody to tell of an event at this path."""
    return path in client._data_watchers or path in client._child_watchers


def stop_flag(client: KazooClient) -> threading.Event:
    """Set to end the connection thread; kazoo's ``stop()`` sets it, but then waits unbounded."""
    return client._stopped


def session_id_and_password(client: KazooClient) -> tuple[int | None, bytes]:
    """Of the session, connected or not; the public ``client_id`` is there while connected."""
    return client._session_id, bytes(client._session_passwd)


def asked_timeout_s(client: KazooClient) -> float:
    """The session time-out that a user's client asks for, in seconds."""
    return client._session_timeout / 1000.0


def sasl_options(client: KazooClient) -> dict[str, Any] | None:
    """How a user's client authenticates by SASL, if it does; the client itself does not keep it."""
    return client._connection.sasl_options
