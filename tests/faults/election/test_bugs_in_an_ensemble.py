"""Bugs 27 and 28 of elections, which need an ensemble, on real servers too: the simulated ensemble
is compared with one real server only.

A member is isolated by fault proxies between the members' ports. It needs no rights, and no traffic
leaves the loopback interface.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest
from beliefs import Beliefs, is_believed
from electorate import Electorate
from electorate import term_of as won
from isolable import IsolableEnsemble

from leaderq import LeaderCareer, Observer, Runner, Term
from leaderq.config import Settings
from leaderq.term import Reason
from leaderq.testing import eventually
from leaderq.zookeeper import SessionState


@pytest.fixture(scope="module")
def isolable() -> Iterator[IsolableEnsemble]:
    """Three servers; the first serves its clients for 20 s after it was isolated."""
    with IsolableEnsemble(settings={"syncLimit": "40"}) as ensemble:
        yield ensemble


def test_bug_27_a_leader_beside_an_isolated_follower_steps_down_before_the_next_one_leads(
    isolable, znode_root
):
    isolated, *others = isolable.members
    elsewhere = ",".join(member.address for member in others)
    with closing(Electorate(elsewhere, znode_root)) as electorate, Beliefs() as beliefs:
        a = electorate.candidate("a", address=isolated.address, timeout_s=3.0)
        b = electorate.candidate("b")
        witness = electorate.session(address=isolated.address, timeout_s=3.0)
        a.stand()
        term = won(a)
        beliefs.add(term)
        electorate.wait_in_line(b)
        isolable.isolate()
        beliefs.add(won(b))
        # The situation: beside that follower all is well, and the old leader's znode still stands.
        node = electorate.path("candidates", term.id)
        assert witness.exists(node)
        assert witness.state is SessionState.CONNECTED
        assert electorate.beside.exists(node) is None
        assert not is_believed(term)
        isolable.heal()
        a.conclude(term, Reason.WITHDRAWN)
        a.stand()
        eventually(lambda: len(electorate.line()) == 2)
    assert not beliefs.overlaps


class Believer(LeaderCareer):
    """Has its terms watched."""

    name = "c"

    def __init__(self, beliefs: Beliefs) -> None:
        self._beliefs = beliefs

    def inaugurate(self, term: Term) -> None:
        self._beliefs.add(term)

    def execute(self, term: Term) -> None:
        term.wait(0.01)


def test_bug_28_a_rolling_restart_shows_never_two_leaders(zookeeper_ensemble, znode_root):
    """Each candidate knows one server, and loses its session while that one is down."""
    members = zookeeper_ensemble.members
    with ExitStack() as cleanup:
        electorate = Electorate(zookeeper_ensemble.address, znode_root)
        cleanup.enter_context(closing(electorate))
        observer = Observer(electorate.beside, "c", root=znode_root)
        beliefs = cleanup.enter_context(Beliefs())
        for id, member in zip("abc", members, strict=True):
            session = electorate.session(address=member.address, timeout_s=2.0)
            settings = Settings(root=znode_root, id=id, cool_off_s=0.1)
            runner = Runner(Believer(beliefs), session, settings=settings)
            thread = threading.Thread(target=runner.run)
            thread.start()
            cleanup.callback(thread.join)
            cleanup.callback(runner.stop)
            eventually(lambda: id in observer.view().candidates)  # noqa: B023
        for id, member in zip("abc", members, strict=True):
            member.stop(keep_data=True)
            eventually(lambda: set(beliefs.believed()) - {id})  # noqa: B023
            member.start()
            eventually(lambda: sorted(observer.view().candidates) == ["a", "b", "c"])
        assert not beliefs.overlaps
