"""Commands that are run by the clock, and once for a key. Ticks while leaders are killed, frozen
and cut off: ``tests/simulation``, lives of schedules.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from leaderq.testing import eventually
from leaderq.testing.waiting import patience

HOSTS = int(os.environ.get("LEADERQ_TEST_ONCE", "1"))
"""How many times five hosts run a command once."""


@pytest.fixture
def leaderq(zookeeper_server: Any, znode_root: str) -> Any:
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
    script = 'echo "$LEADERQ_TERM_TICK_ATTEMPT" >>"$0"; until test -e "$1"; do sleep 0.02; done'
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
