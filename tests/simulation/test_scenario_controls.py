"""Negative controls that a scenario shows: a situation so narrow that chance would rarely lead to
it. The lives of such a control are its scenario, under one seed after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any
from unittest import mock

import pytest

from leaderq.election.decision import Input
from leaderq.election.tenure import Tenure
from leaderq.errors import Deposed, LeaderqError
from leaderq.events import WorkResumed
from leaderq.kafka.consuming.commits import OffsetCommits
from leaderq.term import Reason
from leaderq.testing.simulation.chronicle import LifeVerdict
from leaderq.testing.simulation.kafka.cluster import BrokerCluster
from leaderq.testing.simulation.kafka.error_codes import ErrorCode, RefusedByBroker
from leaderq.testing.simulation.scheduler import World
from leaderq.zookeeper.writing import SequencedWriter
from leaderq.zookeeper.writing.groups import SendQueue
from simulation.control import NegativeControl, around, patched
from simulation.draining import Drain
from simulation.scenarios import is_multi, nth, scene
from simulation.test_election_promises import (
    test_once_a_write_was_fenced_every_later_one_is_refused as fenced_once,
)
from simulation.test_election_scenarios import (
    test_bug_03_a_deleted_znode_is_noticed_at_once_after_a_reconnection as deleted,
)
from simulation.test_writing import TALLY, creates, lying

# -- scenarios -------------------------------------------------------------------------------------


@scene(timeout_s=20.0)
def test_work_stays_paused_when_an_old_proof_comes(s):
    a = s.actor("a")
    a.session._tick_s = 4.0
    term = a.lead()
    s.run(8.0)
    proof = a.session.pulse.proof
    s.network.cut("host-a", there=False)
    s.run(proof.known_s + 15.0 - a.process.clock_s())
    assert term.paused
    s.heal(a)
    s.until(lambda: a.session.pulse.proof.known_s > proof.known_s)
    s.run(0.01)
    assert a.process.clock_s() < term.deadline
    assert not a.events(WorkResumed)


@scene(5)
def test_a_leader_that_begins_at_the_end_has_stored_where_that_is(s):
    real, refused = BrokerCluster.commit, list[int]()

    def commit(self: BrokerCluster, *given: Any) -> Any:
        refused.append(1)
        if len(refused) < 3:
            raise RefusedByBroker(ErrorCode.COORDINATOR_NOT_AVAILABLE, "c")
        return real(self, *given)

    with (
        Drain(s, records=3, auto_offset_reset="latest") as drain,
        mock.patch.object(BrokerCluster, "commit", commit),
    ):
        a, _ = drain.workers("ab")
        s.until(drain.terms)
        drain.feed(5)
        a.process.kill()
        s.until(lambda: {one.offset for one in drain.handled} >= {3, 4, 5, 6, 7})


@scene(5)
def test_a_writer_notices_that_another_one_uses_its_guard(s):
    a, b = s.guests("ab")
    s.ask(lambda beside: beside.ensure_path("/n"))
    mine, other = (SequencedWriter(one.session, TALLY, max_ops=1) for one in (a, b))
    a.do(mine.open)
    b.do(other.open)
    b.do(lambda: other.submit(creates(2, 1)[0]).result(10))
    s.lose(a, nth(2, is_multi), "held")
    futures = a.do(lambda: [mine.submit(one) for one in creates(0, 2)])
    s.run(0.1)  # the first is refused
    s.network.cut("host-a", there=False)
    s.until(lambda: 1 in lying(s))
    s.reset(a)
    s.heal(a)
    errors = a.do(lambda: [one.exception(30) for one in futures])
    done = [number for number, error in enumerate(errors) if error is None]
    assert set(done) <= set(lying(s)), f"{done} are said to be done, and {lying(s)} are"


# -- controls --------------------------------------------------------------------------------------


def _led(made: tuple[Callable[[], None], int]) -> LifeVerdict:
    test, seed = made
    problems = []
    try:
        test.led(seed)
    except (AssertionError, LeaderqError, pytest.fail.Exception) as error:
        problems.append(str(error).partition("\n")[0])
    return LifeVerdict(None, problems, World(seed))


def _of(name: str, edit: Any, test: Any) -> NegativeControl:
    return NegativeControl(name, edit, 0, _led, lambda seed: (test, seed))


def _own_watch_is_gone(self: Tenure) -> None:
    """Nobody notes that the watch is to be set again."""


@around(Tenure, "_proven")
def _any_proof_is_heard(real: Any, self: Tenure, proof: Any) -> None:
    real(self, proof)
    self._say(Input.HEARD)


def _not_wound_up(self: Tenure, reason: Reason) -> Deposed:
    return Deposed(term=self.term.number, reason=reason)


def _not_awaited(self: OffsetCommits, consumer: Any, offsets: Any, wait_s: float) -> None:
    self._store.commit_positions(consumer, self._term, offsets)


@around(SendQueue, "reconcile")
def _nobody_is_foreign(real: Any, self: SendQueue, version: int, *, is_new: bool) -> Any:
    doubts = {one: one.is_doubtful for one in self.again if one.number < version}
    for one in doubts:
        one.is_doubtful = True
    try:
        return real(self, version, is_new=is_new)
    finally:
        for one, doubt in doubts.items():
            one.is_doubtful = doubt


_tenure = partial(patched, Tenure)

SCENARIO_CONTROLS = (
    _of("the own watch is not set again", _tenure("_own_unheard", _own_watch_is_gone), deleted),
    _of(
        "an old proof resumes paused work",
        _any_proof_is_heard,
        test_work_stays_paused_when_an_old_proof_comes,
    ),
    _of("a deposed term may write again", _tenure("_deposed", _not_wound_up), fenced_once),
    _of(
        "the first position is not waited for",
        patched(OffsetCommits, "commit_positions_now", _not_awaited),
        test_a_leader_that_begins_at_the_end_has_stored_where_that_is,
    ),
    _of(
        "foreign writes on the guard go unnoticed",
        _nobody_is_foreign,
        test_a_writer_notices_that_another_one_uses_its_guard,
    ),
)


@pytest.mark.parametrize("control", SCENARIO_CONTROLS, ids=lambda control: control.name)
def test_a_line_that_is_taken_out_is_missed_by_its_scenario(control):
    assert not control.problems(0)
    assert control.search(0, 20) is not None, f"{control.name}: no life shows it"
