"""Every private part of kazoo 2.11 that leaderq relies on, and why; no other file touches one.

kazoo has no public way to do what is done here: what is read or set stands below as a function
each. ``tests/unit/zookeeper/test_private_api.py`` lists what is overridden, and the functions of
kazoo whose inner working we count on, and fails if their source changed.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler

from leaderq.threads import primitives


def use_connection(client: KazooClient, connection: ConnectionHandler) -> None:
    """Let ``client`` connect through ``connection``; kazoo builds its own and takes no other."""
    client._connection = connection


def connection_thread(connection: ConnectionHandler) -> primitives.Thread | None:
    """The only thread that reads and writes; waiting for an answer on it would last for ever."""
    return connection._connection_routine


def server_socket(connection: ConnectionHandler) -> Any:
    """The socket to the server, or ``None``: to read everything that has come, and to break it."""
    return connection._socket


def request_queue(client: KazooClient) -> deque[tuple[Any, Any]]:
    """Requests not sent yet, with their replies. kazoo replaces it when a session ends."""
    return client._queue


def requests_in_flight(client: KazooClient) -> deque[tuple[Any, Any, int]]:
    """Requests sent and not answered, with reply and xid. kazoo replaces it when a session ends."""
    return client._pending


def has_one_shot_watch(client: Any, path: str) -> bool:
    """Whether kazoo has a watch to tell of an event at this path."""
    return path in client._data_watchers or path in client._child_watchers


def stop_flag(client: KazooClient) -> primitives.Event:
    """Set to end the connection thread. kazoo's ``stop()`` sets it too, and then waits without
    bound.
    """
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
