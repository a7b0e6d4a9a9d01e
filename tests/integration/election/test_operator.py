"""What operators ask, on a real ZooKeeper, with leaders that follow."""

from __future__ import annotations

import threading

import pytest

from leaderq import Observer
from leaderq.election import Operator
from leaderq.election.decision import Role
from leaderq.errors import RequestRefused
from leaderq.events import Stage
from leaderq.term import Reason
from leaderq.testing import eventually


class Follower:
    """Leads whenever its candidate wins, and ends its terms when told."""

    def __init__(self, candidate) -> None:
        self.candidate = candidate
        self.paused_seen = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._live, daemon=True)
        candidate.stand()
        eventually(lambda: candidate.role in (Role.WAITING, Role.LEADING))
        self._thread.start()

    def _live(self) -> None:
        while not self._stopping.is_set():
            term = self.candidate.await_term(0.1)
            if term is None:
                continue
            self.candidate.announce(term, Stage.EXECUTION)
            while not term.ending.wait(0.01) and not self._stopping.is_set():
                self.paused_seen = self.paused_seen or term.paused
            self.candidate.conclude(term, Reason.WITHDRAWN)
            if not self._stopping.is_set():
                self.candidate.stand()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10)


@pytest.fixture
def led(electorate):
    followers = [Follower(electorate.candidate(name)) for name in ("a", "b", "c")]
    operator = Operator(electorate.session(), "c", root=electorate.root)
    Observer(electorate.session(), "c", root=electorate.root).wait_until(
        lambda view: view.stage == "execution", timeout_s=30
    )
    yield operator, followers
    for follower in followers:
        follower.stop()


def test_stepping_down_returns_when_the_next_leader_executes(led):
    operator, _ = led
    view = operator.step_down(timeout_s=60)
    assert (view.leader, view.term, view.stage) == ("b", 2, "execution")


def test_a_transfer_reaches_a_candidate_that_is_not_next_in_line(led):
    operator, (a, _, _) = led
    assert operator.transfer("c", timeout_s=60).leader == "c"
    # it stands again after its term, when it comes to it
    eventually(lambda: a.candidate.role is Role.WAITING)
    assert operator.transfer("a", timeout_s=60).leader == "a"
    assert operator.transfer("a", timeout_s=60).term == 3  # it leads already: nothing is changed


def test_a_transfer_to_one_that_does_not_stand_says_who_does(led):
    operator, _ = led
    with pytest.raises(RequestRefused, match="'z' does not stand for 'c'; waiting there: b, c"):
        operator.transfer("z")


def test_a_pause_stops_new_work_and_keeps_the_leader(led):
    operator, (a, _, _) = led
    assert operator.pause().paused
    eventually(lambda: a.paused_seen)
    view = operator.resume()
    assert (view.paused, view.leader, view.term) == (False, "a", 1)


def test_a_raised_floor_numbers_the_next_term(led):
    operator, _ = led
    operator.raise_floor(1000)
    assert operator.step_down(timeout_s=60).term == 1000


def test_a_wish_for_an_earlier_term_does_nothing(led):
    operator, (_, b, _) = led
    operator.step_down(timeout_s=60)
    operator.wish_for(successor=None, term=1)
    assert operator.pause().term == 2
    eventually(lambda: b.paused_seen)  # so it has read what was wished before
    assert operator.resume().term == 2
