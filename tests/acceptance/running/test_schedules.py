"""Ticks of real processes that are killed, frozen and cut off; and commands run by the clock."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from typing import Any

import pytest
from simulation.schedules import unaccounted

from leaderq.election import Observer
from leaderq.errors import NoNode
from leaderq.schedules.record import ScheduleRecord, TickGap, TickOutcome, TickRun, decode
from leaderq.testing import FaultProxy, eventually
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.testing.waiting import patience

TICKS = int(os.environ.get("LEADERQ_TEST_TICKS", "30"))
HOSTS = int(os.environ.get("LEADERQ_TEST_ONCE", "1"))
"""How many times five hosts run a command once."""
EVERY_S = 0.25

Contender = tuple[CandidateProcess, FaultProxy]


SIGNALS = {"kill": signal.SIGKILL, "freeze": signal.SIGSTOP}


def hurt_by(fault: str, contender: Contender) -> None:
    candidate, proxy = contender
    if fault in SIGNALS:
        candidate.signal_worker(SIGNALS[fault])
    else:
        proxy.black_hole()


def mend(contender: Contender) -> None:
    candidate, proxy = contender
    if candidate.alive:
        candidate.signal_worker(signal.SIGCONT)
    proxy.heal()


class Entries:
    """All that ever stood in the record of a schedule: the newest form of each entry."""

    def __init__(self, session: Any, path: str) -> None:
        self._session, self._path = session, path
        self.found: dict[Any, TickRun | TickGap] = {}
        self.first: int | None = None

    def look(self) -> ScheduleRecord | None:
        try:
            record = decode(self._session.get(self._path)[0], path=self._path)
        except NoNode:
            return None
        entries = [*record.history, *([record.running] if record.running else [])]
        if self.first is None:
            self.first = min(
                [record.last, *(one.at - 1 for one in entries if isinstance(one, TickRun))]
            )
        for one in entries:
            self.found[one.at if isinstance(one, TickRun) else ("gap", one.first)] = one
        return record


@pytest.mark.timeout(240 + 4 * TICKS)
@pytest.mark.parametrize("on_crash", ["again", "skip"])
def test_every_tick_is_recorded_once_while_leaders_are_killed_frozen_and_cut_off(
    start, zookeeper, zookeeper_server, fault_proxy, history, znode_root, on_crash
):
    def begun(one: str, proxy: FaultProxy) -> Contender:
        environment = {"EVERY_S": str(EVERY_S), "ON_CRASH": on_crash}
        options = {"zookeeper": proxy.address, "session_timeout_s": 4}
        return start("clockwork:Clockwork", id=one, environment=environment, **options), proxy

    running = {one: begun(one, fault_proxy(zookeeper_server.address)) for one in ("a", "b", "c")}
    observer = Observer(zookeeper, "clockwork", root=znode_root)
    entries = Entries(zookeeper, f"{znode_root}/clockwork/schedules/tidy")
    faults, fault, hurt = itertools.cycle([*SIGNALS, "black hole"]), "", None
    survived = set()
    eventually(lambda: (record := entries.look()) and record.history)
    while len(history.lines("done")) < TICKS or len(survived) < 3:
        for _ in range(20):  # a second is the pace of faults; who catches up does 40 ticks in it
            entries.look()
            time.sleep(0.05)
        for one, (candidate, proxy) in running.items():
            if not candidate.alive:
                running[one] = begun(one, proxy)
        leader = observer.view().leader
        if leader is None or leader == hurt:
            continue
        if hurt is not None:  # another leads
            mend(running[hurt])
            survived.add(fault)
        fault, hurt = next(faults), leader
        hurt_by(fault, running[leader])
    for contender in running.values():
        mend(contender)
        contender[0].stop()
    record = entries.look()
    _judge(record, entries, history, on_crash)


def _judge(record: ScheduleRecord, entries: Entries, history: Any, on_crash: str) -> None:
    found = [*entries.found.values()]
    assert [*unaccounted(record.when, entries.first, record.last, found)] == []
    runs = {one.at: one for one in found if isinstance(one, TickRun)}
    begun, done = defaultdict(list), defaultdict(list)
    for line in history.lines():
        if "tick" in line:
            (begun if line["what"] == "begun" else done)[line["tick"]].append(line["attempt"])
    assert begun.keys() <= runs.keys(), "nothing is done of which no record tells"
    for at, attempts in begun.items():
        assert attempts == sorted(set(attempts)), f"one attempt was made twice: {at} {attempts}"
        assert on_crash == "again" or len(attempts) == 1, f"{at} was begun twice"
    for at, run in runs.items():
        assert run.outcome is not TickOutcome.DONE or done[at], f"{at} was not done"
        assert run.outcome is not TickOutcome.LOST or on_crash == "skip"
    assert len({one.term for one in runs.values()}) >= 3, "leaders were changed"


# ---- commands ------------------------------------------------------------------------------------


@pytest.fixture
def leaderq(zookeeper_server, znode_root) -> Any:
    """Start ``leaderq``, on this test's part of the server."""
    connection = ["--zookeeper", zookeeper_server.address, "--root", znode_root]

    def run(verb: str, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "leaderq", *verb.split(), *connection, *words]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return run


def ended(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=120 * patience())
    return process.returncode, out, err


@pytest.mark.timeout(180 + 120 * HOSTS)
def test_a_command_is_run_once_for_a_key_though_five_hosts_start_it_at_once(leaderq, tmp_path):
    journal = tmp_path / "journal"
    for number in range(HOSTS):
        command = ["sh", "-c", f'echo "{number} $LEADERQ_TERM_TICK_KEY" >>"$0"', str(journal)]
        hosts = [
            leaderq("lead --career nightly", "--id", one, "--once", f"day {number}", "--", *command)
            for one in "abcde"
        ]
        assert [ended(one)[0] for one in hosts] == [0] * 5
    assert journal.read_text().splitlines() == [f"{one} day {one}" for one in range(HOSTS)]


def test_what_failed_for_a_key_is_run_again_and_what_is_busy_is_left_alone(leaderq, tmp_path):
    journal, gate = tmp_path / "journal", tmp_path / "gate"
    script = 'echo "$LEADERQ_TERM_TICK_ATTEMPT" >>"$0"; until test -s "$1"; do sleep 0.02; done'
    command = ["--", "sh", "-c", f"{script}; exit $(cat $1)", str(journal), str(gate)]
    first = leaderq("lead --career nightly --once k --id a", *command)
    eventually(journal.exists)
    code, _, said = ended(
        leaderq("lead --career nightly --if-busy leave --once k --id b", *command)
    )
    assert code == 0 and "another leads" in said
    gate.write_text("3")
    assert ended(first)[0] == 3
    gate.write_text("0")
    assert ended(leaderq("lead --career nightly --once k --if-busy leave --id b", *command))[0] == 0
    assert ended(leaderq("lead --career nightly --once k --id c", *command))[0] == 0
    assert journal.read_text().split() == ["1", "2"]


def test_a_command_that_is_run_by_the_clock_is_paused_run_now_and_listed(
    start, leaderq, znode_root, tmp_path
):
    journal = tmp_path / "journal"
    script = 'echo "$LEADERQ_TERM_TICK_AT $LEADERQ_TERM_TICK_ATTEMPT" >>"$0"; exit 3'
    cron = ["--cron", "0 3 29 2 *", "--tz", "Europe/Berlin"]
    start("nightly", id="a", command=["sh", "-c", script, str(journal)], arguments=cron)
    eventually(lambda: "command" in ended(leaderq("schedule ls"))[1])
    assert ended(leaderq("schedule pause --career nightly"))[2] == "command is paused\n"
    assert ended(leaderq("schedule run-now command --career nightly"))[0] == 0
    eventually(journal.exists)
    eventually(lambda: "failed" in ended(leaderq("schedule history --career nightly"))[1])
    entry = json.loads(ended(leaderq("schedule history --json --career nightly"))[1])
    assert (entry["outcome"], entry["key"], entry["attempt"]) == ("failed", "run-now 1", 1)
    assert "exit code 3" in entry["error"]
    at, attempt = journal.read_text().split()
    assert attempt == "1" and at.endswith(("+01:00", "+02:00"))
    assert ended(leaderq("schedule resume --from-now --career nightly"))[0] == 0
    (shown,) = map(json.loads, ended(leaderq("schedule ls --json"))[1].splitlines())
    assert (shown["times"], shown["paused"]) == ("0 3 29 2 * Europe/Berlin", False)
    assert shown["next"].endswith("-02-29T02:00:00.000+00:00")
    assert "command in " in ended(leaderq("status"))[1]
    status = json.loads(ended(leaderq("status --json"))[1])
    assert status["next_tick"]["at"] == shown["next"]
    code, _, said = ended(leaderq("schedule pause daily --career nightly"))
    assert code == 2 and "no schedule 'daily' of 'nightly'; its schedules: command" in said
