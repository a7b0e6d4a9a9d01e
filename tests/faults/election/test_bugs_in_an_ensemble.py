"""Bug 27 of elections on real servers too: the simulated ensemble is compared with one real server
only. Bug 28, a rolling restart, is a scenario in simulated time.

A member is isolated by fault proxies between the members' ports. It needs no rights, and no traffic
leaves the loopback interface.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from electorate import Electorate, is_believed
from electorate import term_of as won

from leaderq.term import Reason
from leaderq.testing import ZooKeeperEnsemble, eventually
from leaderq.zookeeper import SessionState


@pytest.fixture(scope="module")
def isolable() -> Iterator[ZooKeeperEnsemble]:
    """Three servers; one that is isolated serves its clients for 20 s more."""
    with ZooKeeperEnsemble(linked=True, settings={"syncLimit": "40"}) as ensemble:
        yield ensemble


def test_bug_27_a_leader_beside_an_isolated_follower_steps_down_before_the_next_one_leads(
    isolable, znode_root
):
    isolated = isolable.followers[0]
    others = [member for member in isolable.members if member is not isolated]
    elsewhere = ",".join(member.address for member in others)
    with closing(Electorate(elsewhere, znode_root)) as electorate:
        a = electorate.candidate("a", address=isolated.address, timeout_s=3.0)
        b = electorate.candidate("b")
        witness = electorate.session(address=isolated.address, timeout_s=3.0)
        term = electorate.lead(a)
        electorate.wait_in_line(b)
        isolable.isolate(isolated)
        won(b)
        assert not is_believed(term)
        # The situation: beside that follower all is well, and the old leader's znode still stands.
        node = electorate.path("candidates", term.id)
        assert witness.exists(node)
        assert witness.state is SessionState.CONNECTED
        assert electorate.beside.exists(node) is None
        isolable.heal()
        a.conclude(term, Reason.WITHDRAWN)
        a.stand()
        eventually(lambda: len(electorate.line()) == 2)
