from __future__ import annotations

import json
import multiprocessing
import os
import socket
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from terms import open_term

from leaderq import events, term, zookeeper
from leaderq.base.clock import now_s
from leaderq.running import descendants, guardian_link
from leaderq.running.descendants import Started, StartedInTerm, children_of, descendants_of, kill
from leaderq.running.watchdog import AFTER_THAW_S, Intervention, LeaseReport, Watchdog
from leaderq.testing import eventually
from leaderq.zookeeper.proof import Shares

LEAVE, TERMINATE, KILL, KILL_STARTED = Intervention
UNIT = LeaseReport(term=1, lease_until_s=100.0, grace_s=1.0)
HANDING_OVER = LeaseReport(term=1, lease_until_s=100.0, grace_s=1.0, handing_over=True)
PLANNED = LeaseReport(term=1, lease_until_s=1000.0, grace_s=1.0, budget_until_s=100.0)


def looks(
    dog: Watchdog, begin_s: float, end_s: float, *, stopped: bool = False, step_s: float = 0.05
) -> tuple[Watchdog, dict[Intervention, list[float]]]:
    seen: dict[Intervention, list[float]] = {each: [] for each in Intervention}
    for number in range(round((end_s - begin_s) / step_s)):
        at_s = round(begin_s + number * step_s, 6)
        dog, intervention = dog.look(at_s, stopped=stopped)
        seen[intervention].append(at_s)
    return dog, seen


@pytest.mark.parametrize(
    ("report", "terminated_s", "killed_s"),
    [
        (UNIT, [101.0], 103.0),  # T/8 after the lease; the next leader begins 5T/24 after it
        (HANDING_OVER, [], 103.0),
        # a planned end: its budget or the lease, whichever is over first, and two graces
        (PLANNED, [101.0], 102.0),
        (UNIT._replace(budget_until_s=500.0), [101.0], 103.0),
        (PLANNED._replace(grace_s=2.0), [102.0], 104.0),
        (PLANNED._replace(grace_s=0.1), [100.5], 101.0),  # half a second at least
    ],
)
def test_who_outlives_its_time_is_terminated_once_and_killed_before_the_next_can_lead(
    report, terminated_s, killed_s
):
    _, seen = looks(Watchdog().heard(report), 99.0, 105.0)
    assert (seen[TERMINATE], seen[KILL][0]) == (terminated_s, killed_s)


def test_a_stopped_worker_harms_nobody_and_is_left_alone_but_not_what_it_has_started():
    _, seen = looks(Watchdog().heard(UNIT), 100.0, 200.0, stopped=True)
    assert not seen[TERMINATE] and not seen[KILL]
    assert seen[KILL_STARTED] == [103.0]


def test_a_unit_in_hand_at_a_thaw_is_killed_a_tenth_of_a_second_later():
    dog, _ = looks(Watchdog().heard(UNIT), 99.0, 110.0, stopped=True)
    dog, intervention = dog.look(110.0, stopped=False)
    assert intervention is LEAVE
    _, seen = looks(dog, 110.01, 111.0, step_s=0.01)
    assert not seen[TERMINATE]
    assert 110.05 < seen[KILL][0] < 110.1  # so that it has ended by then


def test_it_looks_again_when_something_is_due():
    dog = Watchdog().heard(UNIT)
    due, at_s = [], 90.0
    for _ in range(3):
        dog, intervention = dog.look(at_s, stopped=False)
        due.append((intervention, dog.due_s))
        at_s = dog.due_s
    assert due == [(LEAVE, 101.0), (TERMINATE, 103.0), (KILL, 103.01)]
    assert dog.look(99.0, stopped=True)[0].due_s == 99.0 + AFTER_THAW_S / 2
    assert dog.heard(None).look(99.0, stopped=True)[0].due_s is None


@pytest.mark.parametrize(
    ("report", "thawed_s", "killed_s"),
    [
        (UNIT._replace(grace_s=0.01), 100.0, 100.0 + AFTER_THAW_S),  # just when the lease ends
        (HANDING_OVER, 102.99, 102.99 + AFTER_THAW_S),  # nobody else can lead yet
        (HANDING_OVER, 103.0, 109.0),
    ],
)
def test_a_thaw_counts_from_the_very_end_of_the_lease(report, thawed_s, killed_s):
    dog, _ = Watchdog().heard(report).look(99.0, stopped=True)
    dog, _ = dog.look(thawed_s, stopped=False)
    _, seen = looks(dog, thawed_s + 0.001, thawed_s + 7.0, step_s=0.001)
    assert not seen[TERMINATE]
    assert seen[KILL][0] == pytest.approx(killed_s)


@pytest.mark.parametrize(("late_s", "expected"), [(0.25, TERMINATE), (0.26, LEAVE)])
def test_a_look_more_than_a_quarter_of_a_second_late_is_a_thaw(late_s, expected):
    assert Watchdog().heard(UNIT).look(101.0, stopped=False)[1] is TERMINATE  # the first is not
    dog, _ = Watchdog().heard(UNIT).look(99.0, stopped=False)
    assert dog.look(101.0 + late_s, stopped=False)[1] is expected


def test_a_report_ends_all_reproach():
    dog, _ = looks(Watchdog().heard(UNIT), 99.0, 101.5)
    _, seen = looks(dog.heard(LeaseReport(term=1, lease_until_s=110.0, grace_s=1.0)), 101.5, 109.0)
    assert not seen[TERMINATE] and not seen[KILL]
    _, seen = looks(dog.heard(None), 101.5, 140.0)
    assert not seen[TERMINATE] and not seen[KILL]


@given(
    lease_s=st.floats(50, 150),
    budget_s=st.none() | st.floats(50, 150),
    grace_s=st.floats(0.05, 10),
    handing_over=st.booleans(),
    stops=st.lists(st.booleans(), min_size=100, max_size=100),
)
def test_no_running_worker_outlives_its_time_and_looks_are_planned_when_they_are_due(
    lease_s, budget_s, grace_s, handing_over, stops
):
    report = LeaseReport(1, lease_s, grace_s, budget_s, handing_over)
    dog, at_s, ran_s, asked = Watchdog().heard(report), 40.0, 0.0, 0
    for stopped in stops:
        dog, intervention = dog.look(at_s, stopped=stopped)
        asked += intervention is TERMINATE
        assert not (stopped and intervention in (TERMINATE, KILL))
        if intervention is KILL:
            assert at_s >= report.ends_s
            break
        due_s = dog.due_s
        assert due_s is not None and due_s > at_s
        ran_s = ran_s + (due_s - at_s) if not stopped and at_s >= lease_s else 0.0
        assert ran_s <= 6 * grace_s + AFTER_THAW_S + 0.05  # in a row, past the lease
        at_s = due_s
    assert asked <= 1


class FakeSession:
    state = zookeeper.SessionState.CONNECTED
    credentials = zookeeper.Credentials(7, b"secret")
    resolved_servers = (("127.0.0.1", 2181),)
    timeout_s = 24.0
    shares = property(lambda self: Shares(self.timeout_s))

    def __init__(self) -> None:
        self.listeners: list[Any] = []

    def add_listener(self, listener: Any) -> None:
        self.listeners.append(listener)


class Guardian:
    def __init__(self) -> None:
        self.end, theirs = socket.socketpair()
        self.link = guardian_link.GuardianLink(theirs)
        self.session = FakeSession()
        self.lost = threading.Event()
        self.events: list[Any] = []
        self._rest = b""
        self.heard: list[dict[str, Any]] = []

    def attach(self) -> None:
        bus = events.EventBus()
        bus.subscribe(events.GuardianLost, self.events.append)
        self.link.attach(self.session, bus, career="c", candidate="a", lost=self.lost.set)

    def read(self) -> list[dict[str, Any]]:
        self.end.setblocking(False)
        with suppress(BlockingIOError):
            while data := self.end.recv(1 << 20):
                *lines, self._rest = (self._rest + data).split(b"\n")
                self.heard += [json.loads(line) for line in lines]
        return self.heard

    def reports(self) -> list[dict[str, Any]]:
        return [message for message in self.read() if "term" in message]


@pytest.fixture
def guardian():
    made = Guardian()
    yield made
    made.end.close()
    assert made.link._session is None or made.lost.wait(30)  # the thread that listens has ended
    made.link._link.close()


@pytest.fixture
def led(guardian):
    guardian.attach()
    watched = open_term(3, lasts_s=100.0)
    guardian.link.watch_term(watched, 10.0)
    eventually(guardian.reports)
    return watched


def test_a_lease_that_is_prolonged_or_shortened_is_reported_at_once(guardian, led):
    assert guardian.reports()[-1]["lease_until_s"] == led.deadline
    for move, by_s in ((led.prolong, 50.0), (led.shorten, -20.0)):
        until_s = led.deadline + by_s
        move(until_s)
        assert guardian.reports()[-1]["lease_until_s"] == until_s


def test_a_deposing_reason_ends_the_lease_now_whatever_the_budget(guardian, led):
    led.wind_up(term.Reason.NODE_DELETED)
    report = guardian.reports()[-1]
    assert report["lease_until_s"] <= now_s()
    assert report["budget_until_s"] is None


def test_a_planned_end_has_its_budget_and_its_lease_goes_on(guardian, led):
    led.wind_up(term.Reason.STEP_DOWN)
    report = guardian.reports()[-1]
    assert report["lease_until_s"] == led.deadline
    assert 9 < report["budget_until_s"] - now_s() <= 10
    guardian.link.report()
    assert guardian.reports()[-1]["budget_until_s"] == report["budget_until_s"]


def test_a_shorter_time_out_makes_a_shorter_grace_and_it_stays(guardian, led):
    guardian.session.timeout_s = 2.4
    guardian.link.report(handing_over=led)
    guardian.session.timeout_s = 24.0
    guardian.link.report(handing_over=led)
    assert guardian.reports()[-1]["grace_s"] == pytest.approx(0.1)


def test_nothing_of_a_term_is_reported_after_its_code_has_returned(guardian, led):
    guardian.link.forget_term(led)
    led.wind_up(term.Reason.LEASE)
    guardian.link.report(handing_over=led)
    assert guardian.reports()[-1] == {"term": None}


def test_a_guardian_that_does_not_read_never_blocks_the_worker_and_hears_the_newest_when_it_does(
    guardian, led
):
    for number in range(600):
        guardian.session.timeout_s = 10.0 - number / 100  # so that each has something to say
        guardian.link.report(handing_over=led)
        guardian.session.listeners[0](zookeeper.SessionState.CONNECTED)
    guardian.link.forget_term(led)
    guardian.link.use_servers("127.0.0.1:2181", None)
    eventually(lambda: {"term": None} in guardian.read())
    assert guardian.reports()[-1] == {"term": None}
    assert len(guardian.reports()) < 600  # only the newest waited
    assert {"zookeeper": "127.0.0.1:2181", "security": None} in guardian.read()


def test_the_end_of_the_guardian_is_said_and_the_worker_told(guardian):
    guardian.attach()
    guardian.end.close()
    assert guardian.lost.wait(30)
    assert [event.pid for event in guardian.events] == [os.getpid()]
    guardian.link.forget_session()  # harmless


def test_of_several_terms_the_one_is_reported_whose_code_must_be_gone_first(guardian):
    guardian.attach()
    guardian.attach()
    assert guardian.link.is_shared
    assert len(guardian.session.listeners) == 1
    long, short = open_term(3, lasts_s=100.0), open_term(3, lasts_s=50.0)
    for led in (long, short):
        guardian.link.watch_term(led, 10.0)
    guardian.link.report(handing_over=long)
    newest = eventually(guardian.reports)[-1]
    assert (newest["lease_until_s"], newest["handing_over"]) == (short.deadline, False)
    long.wind_up(term.Reason.FENCED)
    guardian.link.report()
    assert guardian.reports()[-1]["handing_over"], "the one that was deposed ends first now"
    guardian.link.forget_term(long)
    assert guardian.reports()[-1]["lease_until_s"] == short.deadline
    guardian.link.forget_term(short)
    assert guardian.reports()[-1] == {"term": None}


SLEEPER = [sys.executable, "-c", "import time; time.sleep(600)"]
PARENT = [*SLEEPER[:2], f"import subprocess, time; subprocess.Popen({SLEEPER!r}); time.sleep(600)"]
WITHOUT_ITS_FIRST_THREAD = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(600,)).start()
ctypes.CDLL(None).pthread_exit(None)
"""
CUT_NAME = "начисление".encode()[:15]
"""As the system cuts the name of a program: within a letter."""
NAMED = f"import time; open('/proc/self/comm', 'wb').write({CUT_NAME!r}); time.sleep(600)"


def pids(processes: set[Started]) -> set[int]:
    return {one.pid for one in processes}


def found(process: subprocess.Popen[Any]) -> set[Started]:
    return {one for one in descendants_of(os.getpid()) if one.pid == process.pid}


def test_a_process_that_goes_while_it_is_looked_at_has_no_children():
    for _ in range(50):
        with subprocess.Popen(["sleep", "600"]) as process:
            reaper = threading.Thread(target=process.wait)
            reaper.start()
            process.kill()
            while Path(f"/proc/{process.pid}").exists():
                assert children_of(process.pid) == set()
            reaper.join()


@pytest.mark.parametrize(
    ("program", "is_ready"),
    [
        (WITHOUT_ITS_FIRST_THREAD, lambda process: ") Z " in (process / "stat").read_text()),
        (NAMED, lambda process: (process / "comm").read_bytes() == CUT_NAME + b"\n"),
    ],
)
def test_a_process_without_its_first_thread_or_with_a_name_cut_within_a_letter_is_found(
    program, is_ready
):
    with subprocess.Popen([sys.executable, "-c", program]) as process:
        try:
            eventually(lambda: is_ready(Path(f"/proc/{process.pid}")))
            assert process.poll() is None
            assert pids(kill(found(process))) == {process.pid}
            assert process.wait() == -9
        finally:
            process.kill()


def test_a_group_is_killed_whole_whoever_a_listing_has_missed(monkeypatch):
    with subprocess.Popen(PARENT, start_new_session=True) as parent:
        eventually(lambda: descendants_of(parent.pid))
        missed = descendants_of(parent.pid)
        listed = found(parent)
        monkeypatch.setattr(descendants, "_below", lambda root: [(one.pid, one) for one in listed])
        assert descendants.kill_below(os.getpid()) == listed
        monkeypatch.undo()
        eventually(lambda: not descendants.send(missed, 0))


def test_a_number_that_another_process_bears_by_now_is_left_alone():
    with subprocess.Popen(SLEEPER) as other:
        former = {one._replace(began=one.began - 1) for one in eventually(lambda: found(other))}
        assert kill(former) == set()
        assert other.poll() is None
        other.kill()


def test_only_what_was_started_in_the_term_is_ended():
    with subprocess.Popen(SLEEPER) as before:
        began = found(before).pop().began
        eventually(lambda: StartedInTerm(guardian=0)._since > began)
        started = StartedInTerm(guardian=0)
        with subprocess.Popen(PARENT) as within:
            below = eventually(lambda: descendants_of(within.pid))
            assert pids(started.kill_left()) == {within.pid} | pids(below)
            assert within.wait() == -9
        assert before.poll() is None
        assert started.kill_left() == set()
        before.kill()


def test_the_helpers_of_multiprocessing_live_on():
    started = StartedInTerm(guardian=0)
    context = multiprocessing.get_context("spawn")
    lock = context.Lock()  # starts the resource tracker
    tracker = multiprocessing.resource_tracker._resource_tracker._pid
    assert tracker in children_of(os.getpid())
    assert tracker not in pids(started.kill_left())
    assert tracker in pids(descendants_of(os.getpid()))
    del lock
