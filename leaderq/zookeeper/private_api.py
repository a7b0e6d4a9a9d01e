"""Every private part of kazoo 2.11 that leaderq relies on, and why; no other file uses private
parts.

kazoo has no public way to do what is done here: each function reads or sets one private part.
``tests/unit/zookeeper/test_private_api.py`` lists the functions of kazoo that we override or rely
on, and fails if their source has changed.
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
    """The only thread that reads and writes. A wait on it for an answer would last for ever."""
    return connection._connection_routine


def server_socket(connection: ConnectionHandler) -> Any:
    """The socket to the server, or ``None``; used to read all that has come, and to break the
    connection.
    """
    return connection._socket


def request_queue(client: KazooClient) -> deque[tuple[Any, Any]]:
    """The requests that are not sent yet, with their replies. kazoo makes a new queue when a
    session ends.
    """
    return client._queue


def requests_in_flight(client: KazooClient) -> deque[tuple[Any, Any, int]]:
    """The requests that are sent and not answered, with reply and xid. kazoo makes a new queue when
    a session ends.
    """
    return client._pending


def has_one_shot_watch(client: Any, path: str) -> bool:
    """Whether kazoo itself has a watch on this path that must hear of an event."""
    return path in client._data_watchers or path in client._child_watchers


def stop_flag(client: KazooClient) -> primitives.Event:
    """The event that ends the connection thread when it is set. kazoo's ``stop()`` sets it too, and
    then waits without bound.
    """
    return client._stopped


def session_id_and_password(client: KazooClient) -> tuple[int | None, bytes]:
    """The id and password of the session, connected or not; kazoo's public ``client_id`` has them
    only while it is connected.
    """
    return client._session_id, bytes(client._session_passwd)


def asked_timeout_s(client: KazooClient) -> float:
    """The session time-out that a user's client asks for, in seconds."""
    return client._session_timeout / 1000.0


def sasl_options(client: KazooClient) -> dict[str, Any] | None:
    """The options with which a user's client authenticates by SASL, or ``None``; the client itself
    does not keep them.
    """
    return client._connection.sasl_options
