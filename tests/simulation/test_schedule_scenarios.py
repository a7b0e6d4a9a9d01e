"""Schedules in a world without faults, or with one that a test makes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import pytest

from leaderq import (
    AsyncScheduledCareer,
    AsyncTick,
    LeaderCareer,
    Runner,
    ScheduledCareer,
    Term,
    Tick,
    schedule,
)
from leaderq.base import clock
from leaderq.errors import ConfigurationError, LeaderqError
from leaderq.schedules.operating import ScheduleOperator
from leaderq.schedules.record import ScheduleRecord, TickOutcome, TickRun, decode
from leaderq.testing.simulation.cluster import ADDRESS, SimulatedCluster
from leaderq.testing.simulation.installing import installed
from leaderq.testing.simulation.scheduler import EPOCH_S, World
from leaderq.zookeeper import Create, connect

FOLDER = "/leaderq/life/schedules"
MINUTE_S = 40.0
"""The first full minute of a life."""


class Stage:
    """One candidate of a career in a world of its own, and an operator."""

    def __init__(self, world: World, cluster: SimulatedCluster) -> None:
        self.world, self.cluster = world, cluster

    def lead(self, career: Callable[[], Any], id: str = "a") -> Any:
        worker = self.cluster.worker(id, career, career="life", handover_budget_s=2.0)
        worker.start()
        return worker

    def record(self, name: str = "tidy") -> ScheduleRecord:
        path = f"{FOLDER}/{name}"
        return decode(self.cluster.znodes()[path], path=path)

    def asks(self, what: Callable[[Any], object]) -> None:
        """Let an operator do this, with a session."""

        def ask() -> None:
            with connect(ADDRESS, timeout_s=4.0) as session:
                what(session)

        self.world.process("operator", "host-operator").spawn(ask, "main")

    def until(self, second: float) -> None:
        self.world.run(second)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with _stage() as made:
        yield made


@contextmanager
def _stage() -> Iterator[Stage]:
    world = World(1)
    cluster = SimulatedCluster(world, timeout_s=4.0)
    with installed(world, cluster.network):
        yield Stage(world, cluster)


def career(work: Callable[[Tick], object], **times: Any) -> type[ScheduledCareer]:
    class Tidying(ScheduledCareer):
        name = "life"

        @schedule(**times)
        def tidy(self, tick: Tick) -> None:
            work(tick)

    return Tidying


def seconds(found: list[Tick]) -> list[int]:
    return [round(one.at.timestamp() - EPOCH_S) for one in found]


def test_ticks_and_units_of_the_career_take_turns(stage):
    done: list[str] = []

    class Both(LeaderCareer):
        def execute(self, term: Term) -> None:
            done.append("unit")
            term.wait(0.3)

        @schedule(every_s=1)
        def first(self, tick: Tick) -> None:
            done.append("first")
            clock.sleep(0.6)

        @schedule(every_s=1)
        def second(self, tick: Tick) -> None:
            done.append("second")
            clock.sleep(0.6)

    stage.lead(Both)
    stage.until(20.0)
    assert min(map(done.count, ("unit", "first", "second"))) > 8
    assert "tick tick" not in " ".join("unit" if one == "unit" else "tick" for one in done)


def test_a_tick_that_is_due_begins_at_once_in_a_new_term_and_knows_what_was_missed(stage):
    found: list[tuple[float, Tick]] = []
    inaugurated: list[float] = []

    class Tidying(career(lambda tick: found.append((stage.world.now_s, tick)), every_s=1)):
        def inaugurate(self, term: Term) -> None:
            inaugurated.append(stage.world.now_s)

    first = stage.lead(Tidying, "a")
    stage.until(0.5)
    assert first.is_leading
    stage.lead(Tidying, "b")
    stage.until(5.5)
    first.process.freeze()
    first.guardian.process.freeze()
    stage.until(20.0)
    at_s, new = next(one for one in found if one[1].term.number == 2)
    assert at_s - inaugurated[1] < 0.1
    assert new.missed == seconds([new])[0] - 6 > 2
    every = seconds([one for _, one in found])
    assert every == sorted(set(every))


def test_what_a_tick_writes_is_written_with_its_end_once(stage):
    second: list[str] = []

    def work(tick: Tick) -> None:
        tick.write([Create(f"/done-{tick.missed}-{tick.at.timestamp():.0f}"), Create("/fixed")])
        try:
            tick.write([])
        except LeaderqError as refused:
            second.append(str(refused))

    stage.lead(career(work, every_s=1))
    stage.until(3.5)
    first, *others = stage.record().history
    assert isinstance(first, TickRun) and first.outcome is TickOutcome.DONE
    assert second == ["the tick of 'tidy' is recorded as done; call tick.write once"]
    assert all(isinstance(one, TickRun) and "NodeExists" in str(one.error) for one in others)
    assert others and sum("/done" in path for path in stage.cluster.znodes()) == 1


def test_a_record_that_cannot_be_read_is_begun_anew_and_told(stage):
    found: list[Tick] = []

    def spoil(session: Any) -> None:
        session.ensure_path(FOLDER)
        session.create(f"{FOLDER}/tidy", b"not a record")
        stage.lead(career(found.append, every_s=1))

    stage.asks(spoil)
    stage.until(4.5)
    assert len(found) >= 2 and stage.record().history
    assert any("is not a schedule's record" in line for line in stage.world.lines())


def test_a_calendar_set_back_repeats_no_tick_of_cron_and_an_operator_ends_the_wait(stage):
    found: list[Tick] = []
    worker = stage.lead(career(found.append, cron="* * * * *"))
    stage.until(MINUTE_S + 61)
    worker.process.skew_s = -600.0
    stage.until(MINUTE_S + 300)
    assert seconds(found) == [40, 100]
    stage.asks(lambda session: ScheduleOperator(session, FOLDER).resume("tidy", from_now=True))
    stage.until(MINUTE_S + 365)
    assert seconds(found) == [40, 100, -200]


def test_an_interval_goes_on_by_the_elapsed_clock_when_the_calendar_is_set_back(stage):
    found: list[Tick] = []
    worker = stage.lead(career(found.append, every_s=10))
    stage.until(31.0)
    worker.process.skew_s = -600.0
    stage.until(75.0)
    assert seconds(found) == [10, 20, 30, 40, 50, 60, 70]


def test_an_operator_runs_a_schedule_now_and_pauses_it(stage):
    found: list[Tick] = []
    stage.lead(career(found.append, cron="* * * * *", tz="Europe/Berlin"))
    stage.until(5.0)
    stage.asks(lambda session: ScheduleOperator(session, FOLDER).run_now("tidy"))
    stage.until(7.0)
    (asked,) = found
    assert asked.is_requested and seconds(found)[0] in (5, 6)
    stage.asks(lambda session: ScheduleOperator(session, FOLDER).pause("tidy"))
    stage.until(MINUTE_S + 65)
    assert len(found) == 1
    stage.asks(lambda session: ScheduleOperator(session, FOLDER).resume("tidy"))
    stage.until(MINUTE_S + 125)
    assert seconds(found)[1:] == [160] and found[1].missed == 0
    assert found[1].at == datetime.fromisoformat("2023-11-14T23:16:00+01:00")


@pytest.mark.parametrize("end", ["step down", "kill"])
def test_work_that_raises_because_its_term_ends_is_run_again(stage, end):
    found: list[Tick] = []

    def work(tick: Tick) -> None:
        found.append(tick)
        if len(found) == 1:
            tick.term.wait(30.0)
            raise RuntimeError("interrupted")

    made = career(work, cron="* * * * *")
    first = stage.lead(made, "a")
    stage.until(0.5)
    assert first.is_leading
    stage.lead(made, "b")
    stage.until(MINUTE_S + 1)
    first.terminate() if end == "step down" else first.process.kill()
    stage.until(MINUTE_S + 10)
    assert [(one.attempt, one.term.number) for one in found] == [(1, 1), (2, 2)]
    assert seconds(found) == [40, 40]


class Late(ScheduledCareer):
    @schedule(every_s=1)
    async def tidy(self, tick: Tick) -> None:
        """Never awaited."""


class Plain(AsyncScheduledCareer):
    @schedule(every_s=1)
    def tidy(self, tick: AsyncTick) -> None:
        """Would stop the loop."""


@pytest.mark.parametrize(
    ("kind", "why"),
    [(Late, "tidy is .*a coroutine function"), (Plain, "give a function made with 'async def'")],
)
def test_a_schedule_of_the_wrong_kind_of_method_is_refused_before_it_stands(stage, kind, why):
    def stand(session: Any) -> None:
        with pytest.raises(ConfigurationError, match=why):
            Runner(kind(), session)
        stage.world.note("refused")

    stage.asks(stand)
    stage.until(2.0)
    assert any(" refused" in line for line in stage.world.lines())


# -- coroutines ------------------------------------------------------------------------------------


def test_ticks_of_an_async_career_run_on_its_loop_and_write_with_their_end(stage):
    seen: list[tuple[AsyncTick, Any]] = []

    class Tidying(AsyncScheduledCareer):
        name = "life"

        @schedule(every_s=1, catch_up="all")
        async def tidy(self, tick: AsyncTick) -> None:
            await asyncio.sleep(0.01)
            tick.term.check()
            seen.append((tick, asyncio.get_running_loop()))
            if tick.is_requested:
                await tick.write([Create("/written")])
                raise RuntimeError("after the tick was done")

    stage.lead(Tidying)
    stage.until(5.0)
    stage.asks(lambda session: ScheduleOperator(session, FOLDER).run_now("tidy"))
    stage.until(12.0)
    assert "/written" in stage.cluster.znodes()
    outcomes = {one.key: one.outcome for one in stage.record().history if isinstance(one, TickRun)}
    assert outcomes["run-now 1"] is TickOutcome.DONE
    assert len({id(loop) for _, loop in seen}) == 1
    times = [tick.at for tick, _ in seen if not tick.is_requested]
    assert len(times) > 6 and times == sorted(set(times))


def test_a_tick_that_is_cancelled_at_the_end_of_the_term_is_not_recorded_as_done(stage):
    class Cut(AsyncScheduledCareer):
        name = "life"
        atomic = True

        @schedule(every_s=1)
        async def tidy(self, tick: AsyncTick) -> None:
            await asyncio.sleep(3600)

    worker = stage.lead(Cut)
    stage.until(5.0)
    worker.terminate()
    stage.until(12.0)
    assert not worker.process.alive
    assert stage.record().running
