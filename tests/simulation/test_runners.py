"""Runners and blocks in somebody's own program: how terms end by themselves, by errors and by
cancellations, and several careers of one process. One of each on a real server:
``tests/integration/running``.
"""

from __future__ import annotations

import asyncio
import itertools
from functools import partial
from operator import methodcaller
from typing import Any
from unittest import mock

import pytest

from leaderq import Candidate, LeaderCareer, Runner
from leaderq.base import clock
from leaderq.base.exits import ExitCode
from leaderq.config import Settings
from leaderq.election import Observer, enlistment
from leaderq.errors import AccessRefused, CareerFailed, SessionClosed
from leaderq.events import CoolingOff, Event, EventBus
from leaderq.running.runner import supervise
from leaderq.term import Reason, Term
from leaderq.threads import primitives
from leaderq.zookeeper import Session
from simulation.scenarios import Guest, scene


class Counting(LeaderCareer):
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.reasons: list[Reason | None] = []

    def prepare(self) -> None:
        self.calls.append("prepare")

    def execute(self, term: Term) -> None:
        if self.calls[-1] != "execute":
            self.calls.append("execute")
        term.wait(0.01)

    def handOver(self, term: Term) -> None:  # noqa: N802
        self.reasons.append(term.reason)

    def retire(self) -> None:
        self.calls.append("retire")


class Ending(Counting):
    def __init__(self) -> None:
        super().__init__()
        self.returned = 0
        again_at_once = methodcaller("resign", stand_again_after_s=0.0)
        self._ends = [again_at_once, methodcaller("resign"), methodcaller("finish")]

    def execute(self, term: Term) -> None:
        self._ends.pop(0)(term)
        clock.sleep(0.05)  # for whoever might abandon this unit
        self.returned += 1


@pytest.mark.parametrize("atomic", [False, True])
@scene(5)
def test_a_career_ends_its_own_terms_and_its_own_process(s, atomic):
    (a,) = s.guests("a")
    kind = type("Career", (Ending,), {"atomic": atomic})
    career, events, cooled = kind(), EventBus(), list[Event]()
    events.subscribe(CoolingOff, cooled.append)
    settings = Settings(career="c", id="a", cool_off_s=0.1)
    runner = a.do(lambda: Runner(career, a.session, settings=settings, events=events))
    assert a.do(runner.run) == ExitCode.OK
    assert cooled == []
    assert career.reasons == [Reason.RESIGNED, Reason.RESIGNED, Reason.FINISHED]
    assert career.returned == 3, "a unit that resigned was not finished"
    assert career.calls[-1] == "retire"


def runners(session: Session, careers: list[Counting]) -> list[Runner]:
    brief = {"id": "a", "inaugurate_budget_s": 0.2, "cool_off_s": 0.1}
    return [
        Runner(career, session, settings=Settings(career=f"c{number}", **brief))
        for number, career in enumerate(careers)
    ]


def alive(guest: Guest) -> int:
    return sum(not one.done for one in guest.process.tasks)


@scene(5)
def test_one_thread_looks_after_all_careers_of_a_process(s):
    (a,) = s.guests("a")
    careers, ended = [Counting() for _ in range(6)], list[Runner]()
    overruns: Any = lambda term: term.wait(60)  # noqa: E731  (beside the others)
    fails: Any = lambda: 1 / 0  # noqa: E731
    careers[0].inaugurate, careers[1].retire = overruns, fails  # type: ignore[method-assign]
    made = a.do(lambda: runners(a.session, careers))
    before = alive(a)
    together = a.begin(lambda: ended.extend(supervise(made)))
    s.until(lambda: all("execute" in career.calls for career in careers[1:]))
    s.until(lambda: Reason.BUDGET in careers[0].reasons)
    assert alive(a) - before <= 2 * len(careers) + 2  # this one, and the pulse
    a.do(made[1].stop)
    s.until(lambda: ended == [made[1]])
    assert isinstance(ended[0].failure, CareerFailed)
    for runner in made:
        a.do(runner.stop)
    together.result()
    assert set(ended) == set(made)
    assert [runner.failure for runner in ended[1:]] == [None] * 5


@scene(5)
def test_a_runner_that_cannot_begin_ends_those_that_have_begun(s):
    a, b = s.guests("ab")
    well = Counting()
    begun = a.do(lambda: runners(a.session, [well]))
    a.do(b.session.close)
    ill = a.do(lambda: runners(b.session, [Counting()]))
    with pytest.raises(SessionClosed):
        a.do(lambda: list(supervise([*begun, *ill])))
    s.until(lambda: begun[0].look().ended and "retire" in well.calls)


@pytest.mark.parametrize(
    ("error", "reason"),
    [(ValueError, "failed"), (KeyboardInterrupt, "withdrawn"), (SystemExit, "withdrawn")],
)
@scene(5)
def test_whatever_the_body_raises_goes_on_and_the_term_is_given_back(s, error, reason):
    a, b = s.guests("ab")

    def lead() -> None:
        with pytest.raises(error), a.session.leadership("c", id="a"):
            raise error

    a.do(lead)
    assert b.do(lambda: Observer(b.session, "c").view().reason) == reason

    def next_one() -> str:
        with b.session.leadership("c", id="next", timeout_s=0.5) as term:
            return term.candidate

    assert b.do(next_one) == "next"


@scene(5)
def test_tasks_lead_one_after_the_other_and_one_that_is_cancelled_as_it_wins_releases_the_term(s):
    (a,) = s.guests("a")
    leading, order = set[str](), list[str]()

    async def lead(name: str) -> None:
        async with a.session.leadership("c", id=name) as term:
            leading.add(name)
            assert len(leading) == 1
            await asyncio.sleep(0.05)
            term.check()
            leading.discard(name)
            order.append(name)

    async def both() -> None:
        await asyncio.gather(lead("a"), lead("b"))
        task = asyncio.create_task(lead("c"))
        await asyncio.sleep(0)
        view = Observer(a.session, "c").view
        while view().stage != "execution":  # blocks the loop: the task cannot go on
            clock.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    a.do(lambda: primitives.new_event_loop(None).run_until_complete(both()))
    assert sorted(order) == ["a", "b"]
    s.until(lambda: s.line() == {})


REQUESTS = {"enlisting": "create", "surveying": "multi_read", "leaving": "children"}
REQUESTS |= dict.fromkeys(("claiming", "releasing the term"), "multi")


@pytest.mark.parametrize("doing", REQUESTS)
@scene(5, timeout_s=20.0)
def test_a_refused_login_is_outlived(s, doing):
    a, b = s.actors("ab")
    term = a.lead()
    refusals: list[bool] = []
    ask = getattr(b.session, REQUESTS[doing])

    def refused(*given: Any, **more: Any) -> Any:
        if len(refusals) < 3:
            refusals.append(True)
            raise AccessRefused("ZooKeeper refused the credentials of this session")
        return ask(*given, **more)

    refuse = partial(setattr, b.session, REQUESTS[doing], refused)
    if doing == "enlisting":
        refuse()
        b.stand()
    else:
        b.wait_in_line()
    if doing == "leaving":
        refuse()
        assert b.do(lambda: b.candidate.withdraw(timeout_s=30.0))
    elif doing in ("surveying", "claiming"):
        refuse()
    assert a.conclude(term)
    if doing != "leaving":
        successor = b.await_term()
        if doing == "releasing the term":
            refuse()
        assert b.do(lambda: b.candidate.conclude(successor, Reason.WITHDRAWN, timeout_s=30.0))
    assert len(refusals) == 3


@scene(5)
def test_two_candidates_under_one_id_are_told_of(s):
    (a,) = s.actors("a")
    (b,) = s.guests("b")
    a.lead()
    with mock.patch.object(enlistment.log, "warning") as warned:
        b.do(lambda: Candidate(b.session, "c", id="a").stand())
        s.run(3 * s.timeout_s)
    said = {call.args[0] % call.args[1:] for call in warned.mock_calls}
    assert any("give each its own --id career=c id=a znodes=" in one for one in said), said


@scene(5, timeout_s=6.0)
def test_a_task_whose_wait_was_cancelled_stands_again_with_the_same_block(s):
    a, b = s.guests("ab")

    async def lead_when_it_can() -> int:
        block, me = a.session.leadership("c"), asyncio.current_task()
        assert me is not None
        for cancelled in itertools.count():
            timer = asyncio.get_running_loop().call_later(0.3, me.cancel)
            try:
                async with block as term:
                    timer.cancel()
                    term.check()
                    return cancelled
            except asyncio.CancelledError:
                continue
        raise AssertionError

    def lead_a_while() -> None:
        with b.session.leadership("c"):
            clock.sleep(2.0)

    other = b.begin(lead_a_while)
    s.until(lambda: s.line())
    loop = a.do(lambda: primitives.new_event_loop(None))
    assert a.do(lambda: loop.run_until_complete(lead_when_it_can())) >= 2
    other.result()
    s.until(lambda: s.line() == {})
