from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mute import TOLD, Mute, raising
from terms import open_term

from leaderq import Deposed, LeaderCareer, events
from leaderq.base.arguments import NotAPlainFunction
from leaderq.config.loading import from_environment
from leaderq.errors import CareerFailed, CommandFailed
from leaderq.running import stages, supervision
from leaderq.running.command import CommandCareer, check_command, failure, variables
from leaderq.term import Reason
from leaderq.zookeeper.proof import Shares


class Diary(LeaderCareer):
    def __init__(self, **acts) -> None:
        self.calls: list[str] = []
        self.acts = acts

    def _do(self, what: str, term) -> None:
        self.calls.append(what)
        self.acts.get(what, lambda _term: None)(term)

    def inaugurate(self, term) -> None:
        self._do("inaugurate", term)

    def execute(self, term) -> None:
        self._do("execute", term)

    def handOver(self, term) -> None:  # noqa: N802
        self._do("handOver", term)


def stage_runner(career, term, **others) -> stages.StageRunner:
    """One that serves ``term``, with budgets that no test reaches."""
    budgets = supervision.Budgets()
    budgets.open_term(term)
    options = {
        "budgets": budgets,
        "inaugurate_budget_s": 60,
        "settle_s": 0.0,
        "events": events.EventBus(),
        "tell_stage": lambda _stage: None,
        "step_down": lambda: None,
        "is_heard_out": lambda: True,
    }
    return stages.StageRunner(career, term, **{**options, **others})


def serve(career, term, **others) -> tuple[CareerFailed | None, list[events.CareerError]]:
    errors: list[events.CareerError] = []
    bus = events.EventBus()
    bus.subscribe(events.CareerError, errors.append)
    return stage_runner(career, term, events=bus, **others).serve(), errors


class Delegating(Exception):
    """One whose attributes cannot be asked for, because it asks itself for them."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Empty(Exception):
    def __len__(self) -> int:
        return 0


STAGES = {"inaugurate": "inauguration", "execute": "execution"}


@pytest.mark.parametrize(
    ("stage", "error", "said"),
    [
        ("inaugurate", ValueError("no"), "ValueError: no"),
        ("execute", RuntimeError("no"), "RuntimeError: no"),
        ("execute", SystemExit(3), "SystemExit: 3"),  # it does not leave the process
        ("execute", KeyboardInterrupt(), "KeyboardInterrupt"),
        ("execute", Mute(), TOLD),  # its text cannot be had
        pytest.param("execute", Delegating("no"), "Delegating: no", id="delegating"),
        ("execute", Empty("no"), "Empty: no"),
    ],
)
def test_a_stage_that_raises_is_the_last_one_even_if_the_term_ends_only_later(stage, error, said):
    later = OSError("later")
    career = Diary(**{stage: raising(error), "handOver": raising(later)})
    failure, errors = serve(career, term := open_term())
    assert said in str(failure)
    assert failure.__cause__ is error
    until = list(STAGES).index(stage) + 1
    assert career.calls == [*list(STAGES)[:until], "handOver"]
    assert term.reason is Reason.FAILED
    told = [(event.stage, event.error) for event in errors]
    assert told == [(STAGES[stage], error), ("hand-over", later)]


def test_a_failed_hand_over_is_a_failure():
    career = Diary(
        execute=lambda term: term.wind_up(Reason.STEP_DOWN), handOver=raising(OSError("disk"))
    )
    assert serve(career, open_term())[0]


class Speechless(Deposed):
    def __init__(self) -> None:
        Exception.__init__(self, "of a user's, who does not call the base class")


@pytest.mark.parametrize("deposed", [Deposed(term=1, reason=Reason.FENCED), Speechless()])
def test_noticing_that_one_is_deposed_is_no_failure(deposed):
    career = Diary(execute=raising(deposed))
    assert serve(career, term := open_term()) == (None, [])
    assert (term.reason, career.calls[-1]) == (Reason.FENCED, "handOver")


def test_a_term_that_is_over_before_it_is_served_is_only_handed_over():
    term = open_term()
    term.wind_up(Reason.SESSION)
    career = Diary()
    serve(career, term)
    assert career.calls == ["handOver"]


def test_no_unit_begins_while_the_term_is_paused():
    term = open_term()
    career = Diary(execute=lambda term: term.wind_up(Reason.STEP_DOWN))
    term.pause(True)
    ender = threading.Timer(0.1, lambda: term.wind_up(Reason.TRANSFER))
    # not sooner, or the term might be over before it is served
    career.acts["inaugurate"] = lambda _term: ender.start()
    serve(career, term)
    ender.join()
    assert career.calls == ["inaugurate", "handOver"]


def test_after_an_unclean_end_the_settle_time_is_waited_out_unless_the_term_ends():
    term = open_term(unclean=True)
    ender = threading.Timer(0.05, lambda: term.wind_up(Reason.STEP_DOWN))
    ender.start()
    career = Diary()
    serve(career, term, settle_s=600)
    ender.join()
    assert career.calls == ["handOver"]


async def unawaited(_term) -> None:
    pass


def unfinished(_term):
    yield 1


@pytest.mark.parametrize("hidden", [unawaited, unfinished])
def test_a_stage_that_returns_work_to_do_has_failed(hidden):
    career = Diary()

    def execute(term):
        if "execute" in career.calls:
            term.wind_up(Reason.STEP_DOWN)
        career.calls.append("execute")
        return hidden(term)

    career.execute = execute
    failure, _ = serve(career, term := open_term())
    assert isinstance(failure.__cause__, NotAPlainFunction)
    assert str(failure.__cause__).startswith("execute returned")
    assert term.reason is Reason.FAILED
    assert career.calls == ["inaugurate", "execute", "handOver"]


def test_a_spinning_unit_that_goes_on_after_each_exception_is_abandoned_and_cleans_up():
    unit, running, cleaned = stages.AbandonableUnit(), threading.Event(), []

    def work() -> None:
        try:
            while True:
                try:
                    running.set()
                    while True:
                        pass
                except Exception:
                    continue
        finally:
            cleaned.append(True)

    stopper = threading.Thread(target=lambda: (running.wait(), unit.abandon()))
    stopper.start()
    assert not unit.run(work)
    stopper.join()
    assert cleaned == [True]


def test_no_unit_begins_after_the_abandonment():
    unit, done = stages.AbandonableUnit(), []
    unit.abandon()
    assert not unit.run(lambda: done.append(1))
    assert done == []


def test_an_abandonment_between_the_end_of_a_unit_and_its_leaving_does_not_strike_what_follows():
    class AbandonedAtItsSecondEntry:
        """The lock of a unit that is abandoned when it has returned and is about to leave."""

        def __init__(self) -> None:
            self.lock, self.entries = threading.Lock(), 0

        def __enter__(self) -> None:
            if threading.current_thread() is threading.main_thread():
                self.entries += 1
                if self.entries == 2:
                    stopper = threading.Thread(target=unit.abandon)
                    stopper.start()
                    stopper.join()
            self.lock.acquire()

        def __exit__(self, *_: object) -> None:
            self.lock.release()

    unit, done = stages.AbandonableUnit(), []
    unit._lock = AbandonedAtItsSecondEntry()
    assert not unit.run(lambda: done.append(1))
    assert done == [1]
    assert unit._lock.entries == 3


def test_a_command_is_told_all_that_it_can_use_and_leaderq_within_it_takes_none_for_settings(
    tmp_path,
):
    term = open_term(7, unclean=True)
    told = dict(variables(term, lease_s=20 / 3, budget_s=10.0, deadline="/f"))
    assert told == {
        "LEADERQ_TERM_CAREER": "c",
        "LEADERQ_TERM_CANDIDATE": "a",
        "LEADERQ_TERM_NUMBER": "7",
        "LEADERQ_TERM_ID": "t7",
        "LEADERQ_TERM_UNCLEAN": "1",
        "LEADERQ_TERM_LEASE_S": "6.66667",
        "LEADERQ_TERM_BUDGET_S": "10",
        "LEADERQ_TERM_DEADLINE_FILE": "/f",
    }
    assert from_environment(told, tmp_path).values == {}


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (3, 3, "command 'job' failed: exit code 3"),
        (-9, 137, "command 'job' was ended by SIGKILL"),
        (-40, 168, "SIG40"),
    ],
)
def test_an_end_without_success_has_the_exit_code_of_a_shell(status, code, said):
    error = failure("job", status)
    assert error.exit_code == code
    assert said in str(error)
    assert failure("job", 0) is None


def test_a_signal_for_a_command_of_another_user_does_not_end_this_process() -> None:
    def refuse(number: int) -> None:
        told.append(number)
        raise PermissionError

    told: list[int] = []
    career: Any = CommandCareer(["sudo"])
    career._process = SimpleNamespace(send_signal=refuse)
    career.pass_on(10)
    assert told == [10]


def test_what_cannot_be_run_is_told_with_the_exit_code_of_a_shell(tmp_path, monkeypatch):
    (tmp_path / "text").write_text("#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for name, code, said in [
        ("no-such-job", 127, "was not found: it is in no folder of PATH"),
        (f"{tmp_path}/job", 127, "was not found: there is no such file"),
        ("text", 126, "is not executable; chmod +x it"),
        (str(tmp_path), 126, "it is a folder"),
    ]:
        with pytest.raises(CommandFailed) as caught:
            check_command(name)
        assert said in str(caught.value)
        assert caught.value.exit_code == code
    check_command("sh")


@pytest.mark.parametrize(
    ("reason", "kill_s"),
    [(None, 50.0), (Reason.STEP_DOWN, 50.0), (Reason.LEASE, 50.0), (Reason.FENCED, 0.0)],
)
def test_whoever_may_have_a_successor_already_kills_its_command_at_once(reason, kill_s):
    command: Any = SimpleNamespace(session=SimpleNamespace(shares=Shares(6.0)))
    term: Any = SimpleNamespace(reason=reason, deadline=100.0)
    assert CommandCareer._kill_s(command, term, 50.0) == kill_s
    assert CommandCareer._kill_s(command, term, 500.0) == (100.5 if kill_s else 0.0)


FORKING = """
import os, sys, threading
from test_stages import Diary, serve
from terms import open_term

def fork(term):
    if os.fork():
        os.wait()
        term.resign()
    elif sys.argv[1] == "exit":
        sys.exit()
    elif sys.argv[1] == "raise":
        raise KeyError("of the child's")

class Told(Diary):
    def _do(self, what, term):
        os.write(1, f"{what} {os.getpid() == ours}\\n".encode())
        super()._do(what, term)

ours = os.getpid()
thread = threading.Thread(target=serve, args=(Told(execute=fork), open_term()))
thread.start()
thread.join()
"""


@pytest.mark.parametrize("how", ["return", "exit", "raise"])
def test_a_forked_child_that_comes_back_has_no_part_in_the_term(how):
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", FORKING, how],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n") == ["inaugurate True", "execute True", "handOver True", ""]
