"""Schedules of careers that are coroutines, on real servers."""

from __future__ import annotations

import asyncio
import threading

import pytest

from leaderq import AsyncScheduledCareer, AsyncTick, Runner, connect, schedule
from leaderq.config import Settings
from leaderq.errors import ConfigurationError
from leaderq.schedules.operating import ScheduleOperator
from leaderq.testing import eventually
from leaderq.zookeeper import Create

seen: list[tuple[AsyncTick, asyncio.AbstractEventLoop]] = []


class Tidying(AsyncScheduledCareer):
    name = "tidying"

    @schedule(every_s=0.2, catch_up="all")
    async def tidy(self, tick: AsyncTick) -> None:
        await asyncio.sleep(0.01)
        tick.term.check()
        seen.append((tick, asyncio.get_running_loop()))
        if tick.is_requested:
            await tick.write([Create(f"{self.settings.root}/written")])
            raise RuntimeError("after the tick was done")


def test_ticks_of_an_async_career_run_on_its_loop_and_write_with_their_end(
    zookeeper_server, znode_root
):
    seen.clear()
    with connect(zookeeper_server.address) as session:
        runner = Runner(Tidying(), session, settings=Settings(root=znode_root, id="a"))
        thread = threading.Thread(target=runner.run)
        thread.start()
        try:
            eventually(lambda: len(seen) >= 3)
            operator = ScheduleOperator(session, f"{znode_root}/tidying/schedules")
            operator.run_now("tidy")
            eventually(lambda: session.exists(f"{znode_root}/written"))
            count = len(seen)
            eventually(lambda: len(seen) > count + 2)
            (view,) = operator.look()
        finally:
            runner.stop()
            thread.join()
    outcomes = {one.key: one.outcome for one in view.record.history if hasattr(one, "key")}
    assert outcomes["run-now 1"].value == "done"
    assert len({loop for _, loop in seen}) == 1
    times = [tick.at for tick, _ in seen if not tick.is_requested]
    assert times == sorted(set(times))


def test_a_plain_method_of_an_async_career_is_refused(zookeeper_server, znode_root):
    class Plain(AsyncScheduledCareer):
        @schedule(every_s=1)
        def tidy(self, tick: AsyncTick) -> None:
            """Would stop the loop."""

    refused = pytest.raises(ConfigurationError, match="give a function made with 'async def'")
    with connect(zookeeper_server.address) as session, refused:
        Runner(Plain(), session, settings=Settings(root=znode_root))


class Cut(AsyncScheduledCareer):
    name = "cut"
    atomic = True

    @schedule(every_s=0.2)
    async def long(self, tick: AsyncTick) -> None:
        seen.append((tick, asyncio.get_running_loop()))
        await asyncio.sleep(3600)


def test_a_tick_that_is_cancelled_at_the_end_of_the_term_is_not_recorded_as_done(
    zookeeper_server, znode_root
):
    seen.clear()
    with connect(zookeeper_server.address) as session:
        runner = Runner(Cut(), session, settings=Settings(root=znode_root, id="a"))
        thread = threading.Thread(target=runner.run)
        thread.start()
        eventually(lambda: seen)
        runner.stop()
        thread.join()
        (view,) = ScheduleOperator(session, f"{znode_root}/cut/schedules").look()
    assert view.record.running
