"""The bugs of elections that are about a real client, a real login, or a watch that never fires.

The others of the list in ``docs/design/facts.md`` are scenarios in simulated time
(``tests/simulation/test_election_scenarios.py`` and ``test_election_bugs_14_to_28.py``): below a
session these have the simulation's own client, not kazoo's.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from electorate import Electorate, is_believed
from electorate import term_of as won

from leaderq import Session
from leaderq.testing import FaultProxy, eventually
from leaderq.zookeeper import SessionState

LONG_S = 60.0
"""A session time-out so long that no renewal and no timed look comes during a test."""


@pytest.fixture
def proxy(zookeeper_server, fault_proxy) -> FaultProxy:
    return fault_proxy(zookeeper_server.address)


@pytest.fixture
def electorate(zookeeper_server, proxy: FaultProxy, znode_root: str) -> Iterator[Electorate]:
    made = Electorate(zookeeper_server.address, znode_root)
    yield made
    proxy.heal()
    made.close()


def suspended(session: Session) -> None:
    """Return when ``session`` has lost its connection."""
    eventually(lambda: session.state is not SessionState.CONNECTED, interval_s=0.001)


def test_bug_12_a_session_closed_suspended_ends(electorate, fault_proxy):
    """Through whichever server answers, although its own connection is gone."""
    one, other = fault_proxy(electorate.address), fault_proxy(electorate.address)
    both = f"{one.address},{other.address}"
    a = electorate.candidate("a", address=both, timeout_s=LONG_S)
    electorate.lead(a)
    for each in (one, other):
        each.refuse()
    suspended(a.session)
    other.heal()
    a.session.close(timeout_s=30)
    assert electorate.line() == {}


def close_busy(session: Session, proxy: FaultProxy) -> None:
    for _ in range(500):
        session.set_async("/", b"x" * 1000)
    session.close()


def close_while_reconnecting(session: Session, proxy: FaultProxy) -> None:
    proxy.cut()
    session.close()


def close_while_suspended(session: Session, proxy: FaultProxy) -> None:
    proxy.cut()
    suspended(session)
    session.close()


@pytest.mark.parametrize("close", [close_busy, close_while_reconnecting, close_while_suspended])
def test_bug_24_a_leaders_znode_goes_with_the_close_of_its_session(electorate, proxy, close):
    a = electorate.candidate("a", address=proxy.address, timeout_s=LONG_S)
    b = electorate.candidate("b")
    term = electorate.lead(a)
    electorate.wait_in_line(b)
    close(a.session, proxy)
    assert won(b).unclean  # long before the time-out of 60 s
    assert not is_believed(term)
