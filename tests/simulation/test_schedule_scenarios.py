from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from leaderq import AsyncScheduledCareer, AsyncTick, ScheduledCareer, Term, Tick, schedule
from leaderq.base import clock
from leaderq.career import LeaderCareer
from leaderq.errors import ConfigurationError, LeaderqError
from leaderq.running.runner import Runner
from leaderq.schedules.operating import ScheduleOperator
from leaderq.schedules.record import ScheduleRecord, TickOutcome, TickRun, decode
from leaderq.testing.simulation.scheduler import EPOCH_S
from leaderq.zookeeper import Create
from simulation.scenarios import Scene, scene

FOLDER = "/leaderq/life/schedules"
alone = scene(1, timeout_s=4.0, tick_s=0.8)


def lead(s: Scene, career: Callable[[], Any], id: str = "a") -> Any:
    worker = s.cluster.worker(id, career, career="life", handover_budget_s=2.0)
    worker.start()
    return worker


def record(s: Scene) -> ScheduleRecord:
    path = f"{FOLDER}/tidy"
    return decode(s.cluster.znodes()[path], path=path)


def career(work: Callable[[Tick], object], **times: Any) -> type[ScheduledCareer]:
    class Tidying(ScheduledCareer):
        name = "life"

        @schedule(**times)
        def tidy(self, tick: Tick) -> None:
            work(tick)

    return Tidying


def seconds(found: list[Tick]) -> list[int]:
    return [round(one.at.timestamp() - EPOCH_S) for one in found]


@alone
def test_ticks_and_units_of_the_career_take_turns(s):
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

    lead(s, Both)
    s.world.run(20.0)
    assert min(map(done.count, ("unit", "first", "second"))) > 8
    assert "tick tick" not in " ".join("unit" if one == "unit" else "tick" for one in done)


@alone
def test_a_tick_that_is_due_begins_at_once_in_a_new_term_and_knows_what_was_missed(s):
    found: list[tuple[float, Tick]] = []
    inaugurated: list[float] = []

    class Tidying(career(lambda tick: found.append((s.world.now_s, tick)), every_s=1)):
        def inaugurate(self, term: Term) -> None:
            inaugurated.append(s.world.now_s)

    first = lead(s, Tidying, "a")
    s.world.run(0.5)
    assert first.is_leading
    lead(s, Tidying, "b")
    s.world.run(5.5)
    first.process.freeze()
    first.guardian.process.freeze()
    s.world.run(20.0)
    at_s, new = next(one for one in found if one[1].term.number == 2)
    assert at_s - inaugurated[1] < 0.1
    assert new.missed == seconds([new])[0] - 6 > 2
    every = seconds([one for _, one in found])
    assert every == sorted(set(every))


@alone
def test_what_a_tick_writes_is_written_with_its_end_once(s):
    second: list[str] = []

    def work(tick: Tick) -> None:
        tick.write([Create(f"/done-{tick.missed}-{tick.at.timestamp():.0f}"), Create("/fixed")])
        try:
            tick.write([])
        except LeaderqError as refused:
            second.append(str(refused))

    lead(s, career(work, every_s=1))
    s.world.run(3.5)
    first, *others = record(s).history
    assert isinstance(first, TickRun) and first.outcome is TickOutcome.DONE
    assert second == ["the tick of 'tidy' is recorded as done; call tick.write once"]
    assert all(isinstance(one, TickRun) and "NodeExists" in str(one.error) for one in others)
    assert others and sum("/done" in path for path in s.cluster.znodes()) == 1


@alone
def test_a_tick_that_is_over_writes_nothing_with_the_end_of_the_next_one(s):
    ticks: list[Tick] = []
    refused: list[str] = []

    def work(tick: Tick) -> None:
        ticks.append(tick)
        if len(ticks) == 1:
            raise ValueError("not written")
        try:
            ticks[0].write([Create("/late")])
        except LeaderqError as error:
            refused.append(str(error))
        tick.write([])

    lead(s, career(work, every_s=1))
    s.world.run(4.5)
    first, *others = [one.outcome for one in record(s).history if isinstance(one, TickRun)]
    assert first is TickOutcome.FAILED
    assert others == [TickOutcome.DONE] * len(refused)
    assert refused and "/late" not in s.cluster.znodes()


@alone
def test_a_record_that_cannot_be_read_is_begun_anew_and_told(s):
    """Which those are: ``tests/unit/schedules/test_schedule_record.py``."""
    found: list[Tick] = []
    s.ask(lambda beside: beside.ensure_path(FOLDER))
    s.ask(lambda beside: beside.create(f"{FOLDER}/tidy", b"not a record"))
    lead(s, career(found.append, every_s=1))
    s.world.run(4.5)
    assert len(found) >= 2 and record(s).history
    assert any("is not a schedule's record" in line for line in s.world.lines())


@alone
def test_an_interval_goes_on_by_the_elapsed_clock_when_the_calendar_is_set_back(s):
    found: list[Tick] = []
    worker = lead(s, career(found.append, every_s=10))
    s.world.run(31.0)
    worker.process.skew_s = -600.0
    s.world.run(75.0)
    assert seconds(found) == [10, 20, 30, 40, 50, 60, 70]


@pytest.mark.parametrize(
    ("base", "method", "why"),
    [
        (ScheduledCareer, AsyncTick.write, "a coroutine function"),
        (AsyncScheduledCareer, Tick.write, "give a function made with 'async def'"),
    ],
)
@alone
def test_a_schedule_of_the_wrong_kind_of_method_is_refused_before_it_stands(s, base, method, why):
    kind = type("Late", (base,), {"tidy": schedule(every_s=1)(method)})
    with pytest.raises(ConfigurationError, match=why):
        s.ask(lambda beside: Runner(kind(), beside))


@alone
def test_ticks_of_an_async_career_run_on_its_loop_and_write_with_their_end(s):
    seen: list[AsyncTick] = []
    loops: set[Any] = set()

    class Tidying(AsyncScheduledCareer):
        name = "life"

        @schedule(every_s=1, catch_up="all")
        async def tidy(self, tick: AsyncTick) -> None:
            await asyncio.sleep(0.01)
            seen.append(tick)
            loops.add(asyncio.get_running_loop())
            if tick.is_requested:
                await tick.write([Create("/written")])
                raise RuntimeError("after the tick was done")

    lead(s, Tidying)
    s.world.run(5.0)
    s.ask(lambda beside: ScheduleOperator(beside, FOLDER).run_now("tidy"))
    s.world.run(12.0)
    assert "/written" in s.cluster.znodes()
    outcomes = {one.key: one.outcome for one in record(s).history if isinstance(one, TickRun)}
    assert outcomes["run-now 1"] is TickOutcome.DONE
    assert len(loops) == 1
    times = [tick.at for tick in seen if not tick.is_requested]
    assert len(times) > 6 and times == sorted(set(times))


@alone
def test_a_tick_that_is_cancelled_at_the_end_of_the_term_is_not_recorded_as_done(s):
    class Cut(AsyncScheduledCareer):
        name = "life"
        atomic = True

        @schedule(every_s=1)
        async def tidy(self, tick: AsyncTick) -> None:
            await asyncio.sleep(3600)

    worker = lead(s, Cut)
    s.world.run(5.0)
    worker.terminate()
    s.world.run(12.0)
    assert not worker.process.alive
    assert record(s).running
