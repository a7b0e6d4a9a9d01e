from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from terms import open_term
from test_stages import stage_runner

from leaderq import AsyncLeaderCareer, AsyncTerm, errors, events, zookeeper
from leaderq.running.async_career import seconds_to_cancel
from leaderq.running.supervision import Budgets
from leaderq.term import OpenTerm, Reason
from leaderq.testing import adrive, drive, eventually, waiting

BUDGET_S = 60.0


class Diary(AsyncLeaderCareer):
    def __init__(self) -> None:
        self.calls: list[str] = []
        self.threads: set[str] = set()
        self.terms: set[Any] = set()

    def note(self, what: str, *terms: AsyncTerm) -> None:
        self.calls.append(what)
        self.threads.add(threading.current_thread().name)
        self.terms.update(terms)

    async def prepare(self) -> None:
        self.note("prepare")

    async def inaugurate(self, term: AsyncTerm) -> None:
        self.note("inaugurate", term)

    async def execute(self, term: AsyncTerm) -> None:
        self.note("execute", term)
        await self.unit(term)

    async def unit(self, term: AsyncTerm) -> None:
        await term.wait(1)

    async def hand_over(self, term: AsyncTerm) -> None:
        self.note(f"hand over: {term.reason}", term)

    async def retire(self) -> None:
        self.note("retire")


class Served:
    """A career that serves ``term`` on a thread of its own, as a runner lets it."""

    def __init__(self, career: AsyncLeaderCareer, term: OpenTerm) -> None:
        self.career, self.term = career, term
        self.failure: Any = None
        self.budgets = Budgets()
        self.budgets.open_term(term)
        self.thread = threading.Thread(target=self._serve, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        self.failure = stage_runner(self.career, self.term, budgets=self.budgets).serve()
        self.career._close()

    def end(self) -> None:
        """End the term; return when it has been served."""
        self.term.wind_up(Reason.STEP_DOWN)
        self.budgets.allow(self.term, events.Stage.HANDOVER, BUDGET_S)
        self.thread.join(BUDGET_S / 2)
        assert not self.thread.is_alive(), "the career thread waits"


def test_all_stages_run_on_one_loop_and_are_given_one_term():
    driven = drive(career := Diary(), units=3)
    stages = ["prepare", "inaugurate", *["execute"] * 3, "hand over: Reason.WITHDRAWN", "retire"]
    assert career.calls == stages
    assert career.threads == {"leaderq-loop-diary"}
    assert [one.number for one in career.terms] == [1]
    assert driven.error is None
    assert driven.term.waited_s == 3


def test_a_coroutine_can_drive_a_career_while_its_own_loop_goes_on():
    class Served(Diary):
        async def unit(self, term: AsyncTerm) -> None:
            while not answered:
                await asyncio.sleep(0.001)

    answered: list[bool] = []

    async def test() -> None:
        asyncio.get_running_loop().call_later(0.01, answered.append, True)
        assert (await adrive(Served(), units=2)).error is None

    asyncio.run(test())


def test_a_write_is_awaited_and_refused_after_the_term():
    class Writing(Diary):
        async def unit(self, term: AsyncTerm) -> None:
            assert await term.write([zookeeper.SetData("/a", b"1")]) == [None]
            term.resign()

        async def hand_over(self, term: AsyncTerm) -> None:
            term._term.depose()
            await term.write([zookeeper.SetData("/a", b"2")])

    driven = drive(Writing())
    assert driven.term.written == [[zookeeper.SetData("/a", b"1")]]
    assert driven.reason is Reason.SESSION
    assert driven.error is None  # Deposed is no failure


@pytest.mark.parametrize("leave", [SystemExit(3), KeyboardInterrupt(), ValueError("no")])
def test_what_a_coroutine_raises_is_the_failure_of_the_term_and_the_loop_goes_on(leave):
    class Failing(Diary):
        async def unit(self, term: AsyncTerm) -> None:
            raise leave

    driven = drive(career := Failing(), may_fail=True)
    assert driven.error is leave
    assert career.calls[-2:] == ["hand over: Reason.FAILED", "retire"]


@pytest.mark.skipif(not hasattr(asyncio, "TaskGroup"), reason="Python 3.11")
def test_a_group_of_tasks_that_are_all_deposed_is_not_a_failure():
    class Grouped(Diary):
        async def unit(self, term: AsyncTerm) -> None:
            term._term.depose()
            async with asyncio.TaskGroup() as group:
                for _ in range(3):
                    group.create_task(self.one(term))

        async def one(self, term: AsyncTerm) -> None:
            term.check()

    assert drive(Grouped()).error is None


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ({"execute": lambda self, term: None}, r"execute of .*Hasty is a plain function.*async"),
        *[
            ({"blocked_after_s": seconds}, r"blocked_after_s=.*seconds above 0 in Hasty")
            for seconds in (0, -1.0, float("nan"), "1", None, True)
        ],
    ],
)
def test_a_career_that_is_written_wrongly_is_refused(written, said):
    with pytest.raises(errors.ConfigurationError, match=said):
        drive(type("Hasty", (Diary,), written)())


@pytest.mark.parametrize("atomic", [False, True])
def test_units_of_its_own_are_finished_and_what_only_waits_is_cancelled(atomic):
    begun, go = threading.Event(), threading.Event()

    class Feed(Diary):
        async def work(self) -> None:
            begun.set()
            try:
                while not go.is_set():
                    await asyncio.sleep(0.01)
                self.note("finished")
            except asyncio.CancelledError as exc:
                self.note(f"cancelled: {exc.args[0]}")
                raise

        async def unit(self, term: AsyncTerm) -> None:
            async with term.unit():
                await self.work()
            try:
                await asyncio.sleep(3600)  # for the next message
            except asyncio.CancelledError:
                self.note("waits no longer")
                raise

    Feed.atomic = atomic
    served = Served(career := Feed(), open_term())
    assert begun.wait(30 * waiting.patience())
    threading.Timer(0.1, go.set).start()
    served.end()
    finished = ["finished", "waits no longer"]
    why = f"cancelled: the term ends: {Reason.STEP_DOWN.sentence}"
    assert career.calls[2:-1] == ([why] if atomic else finished)
    assert served.failure is None


def test_no_unit_begins_in_a_pause_or_at_the_end():
    class Units(Diary):
        async def unit(self, term: AsyncTerm) -> None:
            async with term.unit():
                self.note("unit")

    held = open_term()
    held.pause(True)
    served = Served(career := Units(), held)
    eventually(lambda: "inaugurate" in career.calls)
    time.sleep(0.05)
    assert "unit" not in career.calls
    held.pause(False)
    eventually(lambda: "unit" in career.calls)
    served.end()
    assert served.failure is None

    async def begin_late() -> None:
        with pytest.raises(asyncio.CancelledError, match="the term ends"):
            async with AsyncTerm(held).unit():
                pytest.fail("a unit began")

    asyncio.run(begin_late())


@pytest.mark.parametrize(
    ("reason", "time", "flags", "left_s", "since_s", "expected"),
    [
        (Reason.STEP_DOWN, 1, {"atomic": True, "idle": False}, 60, 0, 0),
        (Reason.STEP_DOWN, 2, {"atomic": True, "idle": False}, 58, 2, 57),
        (Reason.STEP_DOWN, 3, {"atomic": True, "idle": False}, 0.5, 59.5, float("inf")),
        (Reason.STEP_DOWN, 1, {"atomic": False, "idle": True}, 60, 0, 0),
        (Reason.RESIGNED, 1, {"atomic": True, "idle": True}, 60, 0, 59),
        (Reason.STEP_DOWN, 1, {"atomic": False, "idle": False}, 60, 0, 59),
        (Reason.STEP_DOWN, 2, {"atomic": False, "idle": False}, 0.5, 59.5, float("inf")),
        (Reason.STEP_DOWN, 1, {"atomic": False, "idle": False}, 1, 1, 0.5),
        (Reason.LEASE, 1, {"atomic": False, "idle": False}, 2, 0, 0.5),
        (Reason.LEASE, 1, {"atomic": False, "idle": False}, float("inf"), 3, float("inf")),
        (Reason.LEASE, 1, {"atomic": True, "idle": False}, float("inf"), 3, 0),
    ],
)
def test_when_a_unit_is_cancelled(reason, time, flags, left_s, since_s, expected):
    assert seconds_to_cancel(reason, time, left_s=left_s, since_s=since_s, **flags) == expected


def test_tasks_that_a_unit_leaves_behind_are_cancelled_and_named(caplog):
    ended: list[str] = []

    class Leaking(Diary):
        async def unit(self, term: AsyncTerm) -> None:
            self.kept = [asyncio.create_task(self.leak(), name=f"leak {n}") for n in range(1000)]
            await asyncio.sleep(0)

        async def leak(self) -> None:
            try:
                await asyncio.sleep(3600)
            finally:
                await asyncio.sleep(0)
                ended.append("leak")

    assert drive(Leaking(), units=1).error is None
    assert len(ended) == 1000
    (told,) = [one.getMessage() for one in caplog.records if "left behind" in one.getMessage()]
    assert "by=a unit of term 1 tasks=1000" in told
    assert "leak 0 (" in told
    assert "Leaking.leak" in told


def test_a_call_that_is_cancelled_with_all_tasks_before_its_first_step_is_made_all_the_same():
    class Clearing(Diary):
        async def inaugurate(self, term: AsyncTerm) -> None:
            self.clearing = asyncio.create_task(self.clear())

        async def clear(self) -> None:
            """As soon as a task is new on the loop, and before it has taken a step."""
            known = asyncio.all_tasks()
            while not (new := asyncio.all_tasks() - known):
                await asyncio.sleep(0)
            for task in new:
                task.cancel()

        async def unit(self, term: AsyncTerm) -> None:
            await asyncio.sleep(0.01)

    assert drive(career := Clearing(), units=2).error is None
    assert career.calls.count("execute") == 2


def test_a_task_that_a_callback_begins_after_its_unit_takes_no_step():
    steps: list[str] = []

    async def late() -> None:
        steps.append("late")

    class Calling(Diary):
        async def unit(self, term: AsyncTerm) -> None:
            loop = asyncio.get_running_loop()
            loop.call_later(0.02, lambda: self.calls.append("called") or loop.create_task(late()))

        async def hand_over(self, term: AsyncTerm) -> None:
            while "called" not in self.calls:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.01)

    drive(Calling(), units=1)
    assert not steps


def test_a_task_waits_for_its_time_or_for_the_end_of_its_term():
    held = open_term()

    async def wait() -> None:
        assert await AsyncTerm(held).wait(0.001)
        asyncio.get_running_loop().call_later(0.01, held.wind_up, Reason.STEP_DOWN)
        assert not await AsyncTerm(held).wait()

    asyncio.run(wait())
    assert not held.wait(1)


def test_a_unit_that_cancels_all_tasks_of_the_loop_is_over_only_when_it_has_cleaned_up():
    class Clearing(Diary):
        async def unit(self, term: AsyncTerm) -> None:
            self.left = asyncio.create_task(self.clean_up("a task"))
            await asyncio.sleep(0)
            for task in asyncio.all_tasks():
                task.cancel()
            await self.clean_up("the unit")

        async def clean_up(self, who: str) -> None:
            try:
                await asyncio.sleep(BUDGET_S)
            except asyncio.CancelledError:
                for _ in range(20):
                    await asyncio.sleep(0.005)
                self.note(f"{who} is clean")
                raise

    driven = drive(career := Clearing(), may_fail=True)
    assert isinstance(driven.error, asyncio.CancelledError)
    assert sorted(career.calls[3:5]) == ["a task is clean", "the unit is clean"]
    assert career.calls[5:] == ["hand over: Reason.FAILED", "retire"]


def test_what_was_begun_earlier_lives_as_long_as_what_began_it(caplog):
    log: list[str] = []

    class Keeping(Diary):
        def keep(self, what: str) -> None:
            async def kept() -> None:
                try:
                    await asyncio.sleep(3600)
                finally:
                    log.append(f"{what} ended after {self.calls[-1]}")

            vars(self)[what] = asyncio.create_task(kept())

        async def prepare(self) -> None:
            self.keep("process")
            self.note("prepare")

        async def inaugurate(self, term: AsyncTerm) -> None:
            self.keep("term")
            self.note("inaugurate", term)

    drive(Keeping(), units=2)
    assert log == ["term ended after hand over: Reason.WITHDRAWN", "process ended after retire"]
