"""Candidates, and kazoo's own recipes as controls, before and behind a proxy of one real server.

``proxy`` stands before ``zookeeper_server``; ``electorate`` makes candidates, ``kazoo_client``
makes plain clients, and ``kazoo_contender`` runs kazoo's ``Election``: all beside the proxy, unless
told its address. They are closed after the test, when the proxy has been healed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from electorate import Electorate, term_of
from kazoo.client import KazooClient
from kazoo_contender import KazooContender, started, stop_within

from leaderq.testing import FaultProxy


@pytest.fixture
def proxy(zookeeper_server: Any, fault_proxy: Callable[[str], FaultProxy]) -> FaultProxy:
    """A fault proxy before the server of the session."""
    return fault_proxy(zookeeper_server.address)


@pytest.fixture
def electorate(zookeeper_server: Any, proxy: FaultProxy, znode_root: str) -> Iterator[Electorate]:
    made = Electorate(zookeeper_server.address, znode_root)
    yield made
    proxy.heal()
    made.close()


@pytest.fixture
def won() -> Callable:
    """The term that a candidate wins, which it must within 30 s."""
    return term_of


@pytest.fixture
def kazoo_client(zookeeper_server: Any, proxy: FaultProxy) -> Iterator[Callable[..., KazooClient]]:
    """``kazoo_client(address=..., timeout_s=...)``: a plain client, by default beside the proxy."""
    made: list[KazooClient] = []

    def make(address: str | None = None, *, timeout_s: float = 30.0) -> KazooClient:
        made.append(started(address or zookeeper_server.address, timeout_s=timeout_s))
        return made[-1]

    yield make
    proxy.heal()
    for client in made:
        stop_within(client, 5.0)


@pytest.fixture
def kazoo_contender(kazoo_client: Any, znode_root: str) -> Iterator[Callable[..., KazooContender]]:
    """``kazoo_contender(id, client)``: stands in kazoo's election of this test, on a thread."""
    made: list[KazooContender] = []

    def make(id: str, client: KazooClient | None = None, **options: Any) -> KazooContender:
        client = client or kazoo_client(**options)
        made.append(KazooContender(client, f"{znode_root}/kazoo", id))
        return made[-1]

    yield make
    for contender in made:
        contender.let_go.set()
