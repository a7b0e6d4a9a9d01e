"""Java Curator 5.9.0 beside ours, on one server."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from java_peer import JavaClient, JavaPeer

from leaderq import Session, connect
from leaderq.errors import MissingPiece

Opened = Callable[..., Session]


@pytest.fixture(scope="session")
def java_peer(tmp_path_factory) -> Iterator[JavaPeer]:
    """A JVM for the session; not to be killed."""
    peer = _peer(tmp_path_factory.mktemp("java") / "peer.log")
    yield peer
    peer.stop()


@pytest.fixture
def mortal_peer(tmp_path) -> Iterator[JavaPeer]:
    """A JVM of the test's own, which may be killed."""
    peer = _peer(tmp_path / "mortal.log")
    yield peer
    peer.stop()


@pytest.fixture
def java(java_peer, zookeeper_server) -> Iterator[JavaClient]:
    """A session of Java's; paths begin at the server's root."""
    client = java_peer.connect(zookeeper_server.address)
    yield client
    client.close()


@pytest.fixture
def opened(zookeeper_server) -> Iterator[Opened]:
    """Makes sessions of ours; paths begin at the server's root, as Java's do."""
    made: list[Session] = []

    def open_one(**options: Any) -> Session:
        made.append(connect(options.pop("address", zookeeper_server.address), **options))
        return made[-1]

    yield open_one
    for session in made:
        session.close(2.0)


@pytest.fixture
def session(opened) -> Session:
    """One session of ours."""
    return opened()


def _peer(log: Path) -> JavaPeer:
    try:
        return JavaPeer(log)
    except MissingPiece as exc:
        if os.environ.get("CI", "").lower() not in ("", "0", "false"):
            pytest.fail(f"CI must have a JDK and Curator: {exc}", pytrace=False)
        pytest.skip(str(exc))
