"""``leaderq lead``: commands as leaders, and what their end means."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from processes import running_with

from leaderq.election import Operator
from leaderq.running.descendants import children_of
from leaderq.testing import eventually
from leaderq.testing.waiting import patience

SOON = ["--handover-budget-s", "1"]
LOOP = 'while :; do echo "$LEADERQ_TERM_NUMBER works" >>"$0"; sleep 0.01; done'
POLITE = """
trap 'echo asked >>"$0"; sleep 0.2; echo done >>"$0"; exit 0' TERM
echo begun >>"$0"
while :; do sleep 0.01; done
"""
ORPHAN = """
(sh -c 'echo $$ >"$0"' "$0.orphan" &)
until test -s "$0.orphan"; do sleep 0.01; done
while test -e /proc/$(cat "$0.orphan"); do sleep 0.01; done
echo reaped >"$0"
while :; do sleep 0.01; done
"""
AS_PROCESS_ONE = ["unshare", "-U", "-r", "-p", "-f", "--kill-child", "--mount-proc"]


@pytest.fixture
def journal(tmp_path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def lead(start):
    def begin(*command: str, id: str = "a", **options):
        candidate = start("commands", id=id, command=command, **options)
        candidate.wait_for("standing")
        return candidate

    return begin


@pytest.fixture
def operator(zookeeper, znode_root):
    return Operator(zookeeper, "commands", root=znode_root)


def lines(journal: Path, what: str) -> list[str]:
    return [line for line in text(journal).splitlines() if line == what]


def text(journal: Path) -> str:
    return journal.read_text() if journal.exists() else ""


def grows(journal: Path, what: str) -> None:
    before = len(lines(journal, what))
    eventually(lambda: len(lines(journal, what)) > before + 3)


def assert_one_after_the_other(journal: Path) -> None:
    terms = [int(line.split()[0]) for line in text(journal).splitlines()]
    assert terms == sorted(terms)


def test_a_shell_loop_moves_with_the_leadership_and_back(lead, operator, journal):
    a = lead("sh", "-c", LOOP, str(journal), id="a")
    grows(journal, "1 works")
    b = lead("sh", "-c", LOOP, str(journal), id="b")
    for term, next_one in ((2, b), (3, a)):
        operator.transfer(next_one.id, timeout_s=60 * patience())
        grows(journal, f"{term} works")
        a.wait_for("standing", count=2)
    assert_one_after_the_other(journal)
    assert a.alive
    assert b.alive


def test_sigterm_reaches_the_command_once_and_it_is_waited_for(lead, journal):
    a = lead("sh", "-c", POLITE, str(journal))
    eventually(lambda: lines(journal, "begun"))
    a.terminate()
    assert a.wait() == 0
    assert text(journal).split() == ["begun", "asked", "done"]


ASKING = """
leaderq=$1
$leaderq deadline --least 0.1 >"$0" && ! $leaderq deadline --least 600 >/dev/null
echo $? >>"$0"
LEADERQ_TERM_DEADLINE_FILE=/no/such/file $leaderq deadline >>"$0"; echo $? >>"$0"
unset LEADERQ_TERM_DEADLINE_FILE; $leaderq deadline 2>>"$0"; echo $? >>"$0"
"""


def test_a_command_may_ask_how_long_its_term_lasts_without_arithmetic(lead, journal):
    a = lead("sh", "-c", ASKING, str(journal), f"{sys.executable} -m leaderq")
    assert a.wait() == 0
    left, *rest = text(journal).splitlines()
    assert 0.1 < float(left) < 60.0
    assert [*rest[:3], rest[-1]] == ["0", "0.000", "1", "2"]
    assert "LEADERQ_TERM_DEADLINE_FILE is not set" in rest[3]


def test_a_guardian_as_process_one_passes_signals_on_and_reaps_orphans(lead, journal):
    unshare = shutil.which("unshare")
    if unshare is None or subprocess.run([*AS_PROCESS_ONE, "true"]).returncode:
        pytest.skip("this system lets nobody make a process namespace (unshare --pid)")
    a = lead("sh", "-c", ORPHAN, str(journal), under=AS_PROCESS_ONE)
    eventually(lambda: lines(journal, "reaped"))
    (guardian,) = children_of(a.pid)
    os.kill(guardian, signal.SIGTERM)
    assert a.wait() == 0
    assert a.said("term_ended", reason="withdrawn", clean=True)


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (["sh", "-c", "exit 3"], 3),
        (["sh", "-c", "trap '' TERM; kill -TERM 0; sleep 0.5; exit 5"], 5),
        (["{folder}/no-interpreter"], 126),
    ],
)
def test_the_exit_code_of_a_command_is_that_of_its_leader(start, tmp_path, command, code):
    (tmp_path / "no-interpreter").write_text("echo x\n")
    (tmp_path / "no-interpreter").chmod(0o755)
    command = [word.format(folder=tmp_path) for word in command]
    assert start("commands", command=command).wait() == code


LEAVING = """
(trap '' TERM; while :; do echo left >>"$0"; sleep 0.01; done) &
setsid sh -c 'trap "" TERM; while :; do echo apart >>"$0"; sleep 0.01; done' "$0" &
until grep -q left "$0" && grep -q apart "$0"; do sleep 0.01; done
"""


def test_what_a_command_leaves_running_when_it_ends_is_dead_when_its_leader_is(
    lead, journal, history
):
    a = lead("sh", "-c", LEAVING, str(journal), arguments=["--handover-budget-s", "2"])
    assert a.wait() == 0
    size = len(text(journal))
    # Were one alive, this would be its time to show it.
    assert not running_with(str(history.path))
    assert len(text(journal)) == size
