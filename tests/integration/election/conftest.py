"""Candidates of one election, each with a session of its own, on the real server."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from electorate import Electorate, term_of


@pytest.fixture
def electorate(zookeeper_server, znode_root: str) -> Iterator[Electorate]:
    made = Electorate(zookeeper_server.address, znode_root)
    yield made
    made.close()


@pytest.fixture
def won() -> Callable:
    """The term that a candidate wins, which it must within 30 s."""
    return term_of
