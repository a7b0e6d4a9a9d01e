"""What ``docs/guarantees.rst`` promises of elections, what candidates, blocks and sessions do at
their ends, and what a review found, as scenarios in simulated time.

What is known and not mended yet is asserted as it is today, and named for the issue it waits for.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from unittest import mock

import pytest

from leaderq import Candidate, Deposed, LeaderCareer
from leaderq.base import clock
from leaderq.config import Settings
from leaderq.election import Operator
from leaderq.errors import CareerFailed, ConfigurationError, SessionClosed, WouldDeadlock
from leaderq.events import TermEnding, WorkPaused
from leaderq.running.runner import Runner
from leaderq.term import Reason, Term
from leaderq.testing.simulation.cluster import SimulatedWorker
from leaderq.threads import Service
from leaderq.zookeeper import SessionState, SetData
from simulation.scenarios import CONTROL, LINE, Scene, lives, scene


class Watched(LeaderCareer):
    """Notes what it does; a unit takes ``unit_s`` and asks nothing."""

    unit_s = 0.01
    fails = 0

    def __init__(self, scene: Scene, name: str) -> None:
        self._scene, self._name = scene, name

    def _note(self, what: str, **facts: object) -> None:
        self._scene.world.note(what, process=self._name, **facts)

    def inaugurate(self, term: Term) -> None:
        self._note("inaugurated", term=term.number)

    def execute(self, term: Term) -> None:
        self._note("unit", term=term.number)
        if type(self).fails:
            type(self).fails -= 1
            raise OSError("a scenario wants it")
        clock.sleep(self.unit_s)
        self._note("done", term=term.number)

    def handOver(self, term: Term) -> None:  # noqa: N802
        self._note("handed over", term=term.number, why=str(term.reason and term.reason.value))


class Slow(Watched):
    unit_s = 100.0


def workers(
    s: Scene, names: str, career: type[Watched] = Watched, **settings: object
) -> list[SimulatedWorker]:
    """Workers in this order of the line; the first leads."""
    made = []
    for name in names:
        worker = s.cluster.worker(name, lambda name=name: career(s, name), career="c", **settings)
        worker.start()
        made.append(worker)
        s.until(lambda: len(s.line()) == len(made))
    s.until(lambda: seen(s, "unit"))
    return made


def seen(s: Scene, what: str, who: str = "", after_s: float = 0.0) -> list[float]:
    """When ``who`` did ``what``."""
    return [
        at_s
        for at_s, process, one, _ in s.world.history
        if one == what and process.startswith(who) and at_s >= after_s
    ]


@scene(timeout_s=20.0)
def test_worker_killed_and_the_next_is_inaugurated_within_100_ms(s):
    a, _ = workers(s, "ab")
    s.run(1.0)
    a.process.kill()
    s.until(lambda: seen(s, "inaugurated", "b"), within_s=0.1)


@scene(timeout_s=6.0, tick_s=0.5)
def test_host_lost_and_the_next_follows_within_its_time(s):
    workers(s, "ab")
    s.run(2.0)
    s.network.lose_host("host-a")
    s.until(lambda: seen(s, "inaugurated", "b"), within_s=1.1 * 6.0 + 0.5)


@scene(timeout_s=6.0, tick_s=0.5)
def test_network_lost_and_nobody_works_beside_the_next(s):
    workers(s, "ab")
    s.run(2.0)
    s.network.cut("host-a")
    s.until(lambda: seen(s, "inaugurated", "b"), within_s=1.1 * 6.0 + 0.5)
    next_s = s.now_s
    s.network.heal("host-a")
    s.run(1.0)
    assert seen(s, "unit", "a", next_s) == []


@pytest.mark.parametrize("has_guardian", [True, False])
@scene(10)
def test_leader_frozen_then_resumed_starts_nothing_in_its_old_term(s, has_guardian):
    a, _ = workers(s, "ab", has_guardian=has_guardian)
    both = [a.process, *([a.guardian.process] if a.guardian else [])]
    for one in both:
        one.freeze()
    s.until(lambda: seen(s, "inaugurated", "b"))
    for one in reversed(both):
        one.thaw()
    thawed_s = s.now_s
    s.run(3.0)
    assert seen(s, "unit", "a", thawed_s) == []
    assert seen(s, "handed over", "a", thawed_s) or not a.process.alive


@scene(timeout_s=6.0, tick_s=0.5)
def test_a_unit_that_outlives_the_lease_ends_with_its_worker_before_another_leads(s):
    a, _ = workers(s, "ab", Slow)
    process = a.process
    s.run(1.0)
    s.network.cut("host-a")
    s.until(lambda: not process.alive)
    assert seen(s, "inaugurated", "b") == []
    s.until(lambda: seen(s, "inaugurated", "b"), within_s=6.0)


@scene(3, timeout_s=6.0)
def test_a_deposed_leader_has_a_sixth_of_its_time_out_whatever_the_budget(s):
    (a,) = workers(s, "a", Slow, has_guardian=False, handover_budget_s=600.0)
    process = a.process
    s.take(*s.line())
    s.until(lambda: not process.alive, within_s=2.0)
    assert [line for line in s.world.lines() if "stage=hand-over budget_s=1" in line]


@scene(3)
def test_a_leader_whose_guardian_was_killed_hands_over_and_says_why(s):
    a, _ = workers(s, "ab")
    a.guardian.process.kill()
    s.until(lambda: seen(s, "unit", "b"))
    assert [line for line in s.world.lines() if "handed over" in line and "why=unguarded" in line]


@scene()
def test_planned_stop_under_50_ms_after_the_unit_in_hand(s):
    a, _ = workers(s, "ab")
    s.run(1.0)
    a.terminate()
    s.until(lambda: seen(s, "inaugurated", "b"), within_s=10.0)
    assert s.now_s - seen(s, "done", "a")[-1] < 0.05


@scene()
def test_transfer_to_one_that_is_not_next_in_line(s):
    workers(s, "abc")
    asked = s.beside.begin(lambda: Operator(s.beside.session, "c").transfer("c"))
    s.until(lambda: seen(s, "inaugurated", "c"), within_s=5.0)
    assert seen(s, "inaugurated", "b") == []
    assert asked.result().leader == "c"


@scene(5)
def test_a_transfer_is_for_the_end_of_one_term(s):
    a, b, c, term = s.standing("abc")
    s.beside.begin(lambda: Operator(s.beside.session, "c").transfer("c"))
    s.until(term.ending.is_set)
    a.conclude(term)
    for leader, others in ((c, a), (b, c)):
        term = leader.await_term()
        others.wait_in_line()
        leader.conclude(term)
    assert a.await_term().number == 4  # it stands before c


@scene(timeout_s=6.0)
def test_zookeeper_unreachable_for_a_moment_pauses_the_work_and_keeps_the_term(s):
    workers(s, "a")
    s.ensemble.stop(0)
    s.run(0.5)
    begun = len(seen(s, "unit"))
    s.run(1.0)
    assert len(seen(s, "unit")) == begun
    s.ensemble.start(0)
    s.until(lambda: len(seen(s, "unit")) > begun, within_s=10.0)
    assert len(seen(s, "inaugurated")) == 1


@scene(timeout_s=6.0)
def test_zookeeper_unreachable_past_the_lease_ends_the_term_and_it_leads_again(s):
    workers(s, "a")
    s.ensemble.stop(0)
    s.until(lambda: seen(s, "handed over"), within_s=5.0)
    s.ensemble.start(0)
    s.until(lambda: len(seen(s, "inaugurated")) == 2)


@scene(10)
def test_code_that_raises_ends_its_term_and_stands_again_after_a_pause(s):
    Watched.fails = 3
    workers(s, "a", cool_off_s=1.0)
    s.until(lambda: len(seen(s, "inaugurated")) == 4)
    times = seen(s, "inaugurated")
    assert all(later - former >= 0.5 for former, later in pairwise(times))


@scene()
def test_once_a_write_was_fenced_every_later_one_is_refused(s):
    a = s.actor("a")
    term = a.lead()
    node = f"{LINE}/{term.id}"
    with a.stalled(WorkPaused) as is_reached:  # so that the candidate's thread tells nothing
        s.ask(lambda beside: Operator(beside, "c").pause())
        s.until(is_reached)
        s.ask(lambda beside: beside.delete(node))
        with pytest.raises(Deposed):
            a.do(lambda: term.write([SetData(CONTROL, b"late")]))
        s.ask(lambda beside: beside.create(node))
        with pytest.raises(Deposed):
            a.do(lambda: term.write([SetData(CONTROL, b"late")]))


@scene()
def test_an_end_meant_for_one_term_does_not_end_the_next(s):
    a = s.actor("a")
    former = a.lead()
    a.conclude(former)
    term = a.lead()
    a.do(lambda: a.candidate.step_down(Reason.HEALTH, term=former))
    s.run(3.0)
    assert a.believes(term)
    assert not term.ending.is_set()


@scene(10)
def test_a_new_leader_begins_paused_if_an_operator_paused_the_career(s):
    a, b, term = s.standing("ab")
    s.ask(lambda beside: Operator(beside, "c").pause())
    s.until(lambda: term.paused)
    a.conclude(term)
    assert b.await_term().paused


@scene()
def test_a_second_block_of_one_thread_is_refused_and_those_of_two_follow_each_other(s):
    a = s.actor("a")
    inside: list[int] = []

    def lead() -> None:
        with a.session.leadership("x"):
            inside.append(1)
            assert len(inside) == 1
            with pytest.raises(WouldDeadlock), a.session.leadership("x"):
                pass
            clock.sleep(0.5)
            inside.pop()

    jobs = [a.begin(lead) for _ in range(3)]
    for job in jobs:
        job.result()


@scene(timeout_s=6.0)
def test_a_loop_whose_term_was_deposed_leads_again(s):
    a = s.actor("a")
    numbers: list[int] = []

    def lead() -> None:
        for term in a.session.terms("x", cool_off_s=0.1):
            numbers.append(term.number)
            while term.wait(0.5):
                pass
            if len(numbers) == 2:
                term.finish()
                return

    leading = a.begin(lead)
    s.until(lambda: numbers)
    s.expire(a)
    s.until(lambda: len(numbers) == 2)
    s.expire(a)
    leading.result()
    assert numbers == [1, 2]


@scene()
def test_a_session_closed_in_the_body_ends_the_term_and_the_next_block_is_refused(s):
    a = s.actor("a")

    def lead() -> None:
        with a.session.leadership("x") as term:
            a.session.close()
            assert not term.wait(0)
        with a.session.leadership("x"):
            pass

    with pytest.raises(SessionClosed):
        a.do(lead)


@pytest.mark.parametrize(
    ("told", "slow_s"),
    [(SessionState.SUSPENDED, 0.0), (SessionState.SUSPENDED, 0.5), (SessionState.LOST, 0.0)],
)
@scene(timeout_s=6.0)
def test_a_session_closed_by_a_listener_ends_the_term_before_another_begins(s, told, slow_s):
    a, b = s.actors("ab")

    def closing(state: SessionState) -> None:
        if state is told:
            assert a.session.close()
            clock.sleep(slow_s)  # whoever stands behind it hears later of what it did

    a.do(lambda: a.session.add_listener(closing))
    a.lead()
    b.wait_in_line()
    if told is SessionState.LOST:
        s.replace(a)
    else:
        a.session.drop_connection()
    b.await_term()
    assert a.session.state is SessionState.CLOSED


@scene(5, timeout_s=6.0)
def test_a_listener_of_events_may_close_the_candidate_that_tells_it(s):
    a, b = s.actors("ab")
    a.bus.subscribe(TermEnding, lambda _: a.candidate.close())
    term = a.lead()
    b.wait_in_line()
    a.do(lambda: a.candidate.step_down(Reason.STEP_DOWN))
    s.until(lambda: a.candidate._closed, within_s=0.1)
    a.conclude(term)
    b.await_term(1.0)
    s.until(lambda: not a.candidate._service.is_running)


@scene(2, timeout_s=6.0)
def test_who_never_stood_or_was_closed_stands_no_more(s):
    a = s.actor("a")
    a.do(a.candidate.close)
    a.stand()
    s.run(0.5)
    assert (a.candidate._service.is_running, s.line()) == (False, {})


@pytest.mark.parametrize("timeout_s", [float("inf"), 1e300, None])
@scene(2)
def test_a_block_waits_for_its_term_without_end(s, timeout_s):
    a = s.actor("a")

    def lead() -> int:
        with a.session.leadership("x", timeout_s=timeout_s) as term:
            return term.number

    assert a.do(lead) == 1


@scene(1)
def test_what_cannot_be_used_is_refused_before_anybody_stands(s):
    a = s.actor("a")
    for wrong in (
        lambda: a.session.leadership("x", timeout_s=float("nan")),
        lambda: a.session.leadership(None),
        lambda: a.session.terms(None),
        lambda: a.session.terms("x", cool_off_s="5"),
        lambda: Candidate(a.session, "a/b", id="a"),
        lambda: Candidate(a.session, "c", id=5),
        lambda: Candidate(a.session, "c", id="\ud800"),
        lambda: Candidate(a.session, "c", id="a", root="c"),
    ):
        with pytest.raises(ConfigurationError):
            a.do(wrong)


@scene(2)
def test_a_loop_that_cools_off_for_a_century_ends_with_its_session(s):
    a = s.actor("a")
    numbers: list[int] = []

    def lead() -> None:
        for term in a.session.terms("x"):
            numbers.append(term.number)
            term.resign(stand_again_after_s=1e12)

    leading = a.begin(lead)
    s.until(lambda: numbers)
    s.run(1000.0)
    a.do(a.session.close)
    with pytest.raises(SessionClosed):
        leading.result(1.0)
    assert numbers == [1]


@scene(2, timeout_s=20.0)
def test_a_term_that_could_not_be_served_is_given_up_at_once(s):
    """The system may have no thread left for the health check."""
    a, b = s.actors("ab")
    runner = a.do(lambda: Runner(Ailing(s, "a"), a.session, settings=Settings(career="c")))
    with mock.patch.object(Service, "start", none_left):
        running = a.begin(runner.run)
        s.until(lambda: s.record())
        b.stand()
        b.await_term(5.0)
        with pytest.raises(CareerFailed, match="no thread left"):
            running.result()


class Ailing(Watched):
    def healthy(self) -> bool:
        return True


def none_left(service: Service, start: Callable[[Service], bool] = Service.start) -> bool:
    if "health" in service.name:
        raise RuntimeError("no thread left")
    return start(service)


@scene(timeout_s=20.0)
def test_a_replaced_session_that_nobody_could_end_is_ended_when_a_server_answers(s):
    a, b, term = s.standing("ab")
    s.cut(a)
    s.reset(a)
    s.replace(a)
    s.run(3.0)
    a.conclude(term)
    assert len(s.line()) == 2
    s.heal(a)
    b.await_term(12.0)


@scene(timeout_s=20.0)
def test_a_replaced_session_is_not_ended_while_its_leaders_code_runs(s):
    a, b, term = s.standing("ab")
    s.replace(a)
    s.run(10.0)
    assert a.refuses(term)
    assert len(s.line()) == 2
    a.conclude(term)
    b.await_term(2.0)


def test_a_stall_between_servers_and_then_its_loss_shows_one_leader():
    """What the ensemble's leader says to the follower of ours is held for 3.3 s; then it comes
    at once, late acknowledgements among it, and the follower is cut off before it has told of whom
    it heard.
    """

    def stall(s: Scene) -> None:
        a, b = s.actor("a", server=0), s.actor("b", server=2)
        a.lead()
        b.wait_in_line()
        s.run(3.0 + s.world.faults())
        held = s.ensemble._quorum._links[0, 2].down
        held.cut()
        s.run(3.3)
        held.heal()
        s.world.at(0.0008, lambda: [s.ensemble.cut(0, other) for other in (1, 2)])
        b.await_term()

    for ticks in (3, 6, 12):
        assert not any(lives(stall, 12, servers=3, timeout_s=6.0, tick_s=6.0 / ticks))


@scene(40)
def test_a_host_paused_with_its_clock_begins_no_unit_once_its_server_has_hung_up(s):
    a, _ = workers(s, "ab")
    s.run(1.0)
    paused = [a.process, a.guardian.process]
    for one in paused:
        one.freeze_with_clock()
    s.until(lambda: seen(s, "unit", "b"), within_s=20.0)
    thawed_s = s.now_s
    for one in paused:
        one.thaw()
    s.run(1.0)
    assert not seen(s, "unit", "a", thawed_s)


def test_a_host_paused_with_its_clock_in_a_silent_network_works_on_for_its_lease():
    """1.3: only fenced writes are refused; no user of Python can see such a pause."""

    def pause(s: Scene) -> None:
        a, b, term = s.standing("ab")
        s.run(3.0)
        s.cut(a)
        a.process.freeze_with_clock()
        b.await_term()
        a.process.thaw()
        assert a.believes(term)
        s.run(4.0)
        assert a.refuses(term)

    assert all(lives(pause, 5))


def test_the_vocabulary_sees_two_that_believe():
    def both(s: Scene) -> None:
        a, b, _ = s.standing("ab")
        s.cut(a)
        s.ensemble.expire(a.session.id or 0)  # long before its lease is over
        b.await_term()

    assert all(lives(both, 3))


class Observed(Slow):
    def prepare(self) -> None:
        self.events.subscribe(TermEnding, lambda _event: clock.sleep(1000.0))


def test_a_first_lease_behind_a_follower_that_is_lost_has_the_margin_of_the_guardian():
    """Who waits pings every T/3 only; the first lease is as long as its proof."""
    margins: list[float] = []

    def claim(s: Scene) -> None:
        first, a, b = s.actor("f", server=2), s.actor("a", server=0), s.actor("b", server=2)
        term = first.lead()
        a.wait_in_line()
        b.wait_in_line()
        s.run(3.0 + 4 * s.world.faults())
        first.conclude(term)
        late = a.await_term()
        for other in (1, 2):
            s.ensemble.cut(0, other)
        b.await_term()
        shares = a.session.shares
        margins.append(a.process.clock_s() - late.deadline - shares.gone_s + shares.trusted_s)

    assert not any(lives(claim, 40, servers=3, timeout_s=6.0, tick_s=0.5))
    assert min(margins) > 0.0


@scene(3)
def test_an_observer_that_blocks_keeps_no_budget_from_beginning(s):
    a, b = workers(s, "ab", Observed, handover_budget_s=1.0)
    s.ask(lambda beside: Operator(beside, "c").step_down())
    s.until(lambda: not a.process.alive, within_s=2.0)
    s.until(lambda: seen(s, "unit", "b"), within_s=1.0)
    assert b.process.alive
