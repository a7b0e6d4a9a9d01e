"""No effect of a term comes after its successor's inauguration, however rude the career.

``make test`` does a few kinds of change once, ``make test-long`` all kinds twice; ``make rude
CHANGES=100`` does each a hundred times (``LEADERQ_TEST_CHANGES``).
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from changes import CHANGES, SESSION_TIMEOUT_S, Change, Contender, Contest, Kind, run_all

from leaderq.election import Operator
from leaderq.election.layout import Layout, in_line
from leaderq.testing import eventually
from leaderq.testing.freezing import freeze as freeze_processes
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Credentials, connect, end_session

THAW_S = 0.1 + 0.1 * patience()
"""What is promised after a thaw, and what a busy machine takes to act."""
AT_ONCE_S = SESSION_TIMEOUT_S / 3
"""Where ZooKeeper lets the next one lead at once: a guardian's SIGKILL comes after T/6."""
KILLED = (1,)
PATIENT = 180 + 90 * CHANGES
SOON = ("--handover-budget-s", "1")


def verdict(changes: list[Change]) -> None:
    bad = [change for change in changes if change.complaints]
    if bad:
        found = [f"{change.kind.name}: {'; '.join(change.complaints)}" for change in bad]
        pytest.fail("\n".join(found), pytrace=False)


# ---- what is done to a leader ---------------------------------------------------------------


def cut_off(_contest: Contest, leader: Contender) -> None:
    leader.proxy.black_hole()


def cut_off_alone(contest: Contest, leader: Contender) -> None:
    """While the guardian is stopped: the worker must leave by itself."""
    leader.frozen = [leader.pid]
    freeze_processes(*leader.frozen)
    cut_off(contest, leader)


def hog(_contest: Contest, leader: Contender) -> None:
    Path(f"{leader.path}.go").touch()


def kill_worker(_contest: Contest, leader: Contender) -> None:
    leader.signal_worker(signal.SIGKILL)


def kill_guardian(_contest: Contest, leader: Contender) -> None:
    os.kill(leader.pid, signal.SIGKILL)


def ask_to_stop_and_cut_off(contest: Contest, leader: Contender) -> None:
    ask_to_stop(contest, leader)
    leader.wait_for("term_ending")
    cut_off(contest, leader)


def ask_to_stop(_contest: Contest, leader: Contender) -> None:
    leader.terminate()


def step_down(contest: Contest, _leader: Contender) -> None:
    with connect(contest.server) as session:
        Operator(session, "rude", root=contest.root).step_down(timeout_s=60 * patience())


def transfer(contest: Contest, _leader: Contender) -> None:
    with connect(contest.server) as session:
        operator = Operator(session, "rude", root=contest.root)
        operator.transfer(contest.newest.id, timeout_s=60 * patience())


def freeze(_contest: Contest, leader: Contender) -> None:
    leader.frozen = [leader.pid, leader.worker_pid, *leader.processes()]
    freeze_processes(*leader.frozen)


def freeze_worker_and_children(_contest: Contest, leader: Contender) -> None:
    leader.frozen = [leader.worker_pid, *leader.processes()]
    freeze_processes(*leader.frozen)


def freeze_worker(_contest: Contest, leader: Contender) -> None:
    leader.frozen = [leader.worker_pid]
    freeze_processes(*leader.frozen)


def thaw(_contest: Contest, leader: Contender) -> None:
    send(leader.frozen, signal.SIGCONT)


def send(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def delete_znode(contest: Contest, _leader: Contender) -> None:
    folder = Layout(contest.root, "rude").candidates
    with connect(contest.server) as admin:
        admin.delete(f"{folder}/{in_line(admin.children(folder))[0]}")


def close_session(contest: Contest, leader: Contender) -> None:
    """Close the session with what the server told its owner when that connected again."""
    told: list[bytes] = []
    leader.proxy.drop_replies(lambda reply: told.append(reply) and False)
    leader.proxy.cut()
    welcome = eventually(lambda: next(reply for reply in told if reply[16:20] == b"\0\0\0\x10"))
    leader.proxy.heal()
    credentials = Credentials(int.from_bytes(welcome[8:16], "big"), welcome[20:36])
    assert end_session(contest.server, credentials, timeout_s=30)


# ---- changes of leader ----------------------------------------------------------------------


@pytest.fixture(params=["some", "all"])
def change_leaders(request, zookeeper_server, znode_root, tmp_path):
    """Do changes of these kinds, or of every fourth, and fail if one left what it must not."""

    def change(*kinds: Kind) -> None:
        server = zookeeper_server.address
        kinds = kinds if request.param == "all" else kinds[::4]
        verdict(run_all(kinds, server=server, root=znode_root, folder=tmp_path))

    return change


@pytest.mark.timeout(PATIENT)
def test_a_leader_that_hears_nothing_or_runs_no_python_ends_before_its_successors_inauguration(
    change_leaders,
):
    change_leaders(
        Kind("black hole, a unit of 12 s", "LongUnits", cut_off, KILLED),
        Kind("black hole, units of 1 ms", "TinyUnits", cut_off),
        Kind("black hole, children", "Children", cut_off, KILLED),
        Kind("black hole, a daemon", "Daemonizing", cut_off, KILLED),
        Kind("black hole, SIGTERM ignored", "Deaf", cut_off, KILLED),
        Kind("black hole, BaseException swallowed", "Swallowing", cut_off, KILLED),
        Kind("black hole, children left behind", "LeavingChildren", cut_off),
        # The worker leaves by itself (4) at the very moment at which it is killed (1).
        Kind("black hole, a hand-over without end", "NeverHandsOver", cut_off, (1, 4)),
        Kind("GIL held, a child", "GilHog", hog, KILLED),
        # Its supervisor's SIGTERM and its guardian's are not "leave at once", which would be 130.
        Kind("SIGTERM, then black hole", "LongUnits", ask_to_stop_and_cut_off, KILLED),
        Kind("black hole, guardian stopped", "LongUnits", cut_off_alone, (4,), undo=thaw),
    )


@pytest.mark.timeout(PATIENT)
def test_a_thawed_leader_begins_nothing_and_its_unit_ends_within_a_tenth_of_a_second(
    change_leaders,
):
    thawed: Any = {"undo": thaw, "within_s": THAW_S}
    # Children end while their worker is stopped, so its unit may return in time.
    change_leaders(
        Kind("freeze of all, a unit of 12 s", "LongUnits", freeze, KILLED, **thawed),
        Kind("freeze of all, units of 1 ms", "TinyUnits", freeze, **thawed),
        Kind("freeze of all, children", "Children", freeze, **thawed),
        Kind("freeze of all, a daemon", "Daemonizing", freeze, KILLED, **thawed),
        Kind("freeze of the worker, children go on", "Children", freeze_worker, undo=thaw),
        Kind("freeze of the worker, units of 1 ms", "TinyUnits", freeze_worker, **thawed),
        Kind("freeze of the worker, a unit of 12 s", "LongUnits", freeze_worker, KILLED, **thawed),
        Kind("freeze of worker and children", "Children", freeze_worker_and_children, **thawed),
    )


@pytest.mark.timeout(PATIENT)
def test_what_was_started_in_a_term_ends_before_the_next_inauguration(change_leaders):
    at_once: Any = {"takes_s": 3.0}
    budget: Any = {"takes_s": 3.0, "arguments": SOON}
    # Where ZooKeeper lets the next one lead at once only a bound can be promised.
    taken_away: Any = {"takes_s": 3.0, "within_s": AT_ONCE_S}
    change_leaders(
        Kind("kill -9 of the worker, a unit of 12 s", "LongUnits", kill_worker, KILLED, **at_once),
        Kind("kill -9 of the worker, children", "Children", kill_worker, KILLED, **at_once),
        Kind("kill -9 of the worker, a daemon", "Daemonizing", kill_worker, KILLED, **at_once),
        Kind("SIGTERM, children", "Children", ask_to_stop, (4,), **budget),
        Kind("SIGTERM, a daemon", "Daemonizing", ask_to_stop, (4,), **budget),
        Kind("SIGTERM, a hand-over without end", "NeverHandsOver", ask_to_stop, (4,), **budget),
        Kind("step-down, children left behind", "LeavingChildren", step_down, **at_once),
        Kind("kill -9 of the guardian, a unit of 12 s", "LongUnits", kill_guardian, arguments=SOON),
        Kind("kill -9 of the guardian, a daemon", "Daemonizing", kill_guardian, arguments=SOON),
        Kind("kill -9 of the guardian, units of 1 ms", "TinyUnits", kill_guardian),
        Kind("kill -9 of the guardian, children", "Children", kill_guardian, arguments=SOON),
        Kind("kill -9 of the guardian, children left behind", "LeavingChildren", kill_guardian),
        Kind("znode deleted, a unit of 12 s", "LongUnits", delete_znode, KILLED, **taken_away),
        Kind("znode deleted, children", "Children", delete_znode, KILLED, **taken_away),
        Kind("session closed, a unit of 12 s", "LongUnits", close_session, KILLED, **taken_away),
    )


@pytest.mark.timeout(PATIENT)
def test_a_loop_and_all_that_coroutines_have_begun_end_before_the_next_inauguration(change_leaders):
    budget: Any = {"takes_s": 3.0, "arguments": SOON}
    change_leaders(
        Kind("black hole, time.sleep in a coroutine", "AsyncSleeping", cut_off, KILLED),
        Kind("black hole, cancellation swallowed", "AsyncSwallowing", cut_off, KILLED),
        Kind("black hole, 1,000 leaked tasks", "AsyncLeaking", cut_off, KILLED),
        Kind("black hole, a loop of its own", "AsyncOwnLoop", cut_off, KILLED),
        Kind("SIGTERM, default executor blocked", "AsyncThreads", ask_to_stop, (4,), **budget),
        Kind("black hole, default executor blocked", "AsyncThreads", cut_off, KILLED),
        Kind("black hole, os.fork", "AsyncForking", cut_off),
        Kind("SIGTERM, time.sleep in a coroutine", "AsyncSleeping", ask_to_stop, (4,), **budget),
        Kind("SIGTERM, os.fork", "AsyncForking", ask_to_stop, (0,), **budget),
        Kind("SIGTERM, cancellation swallowed", "AsyncSwallowing", ask_to_stop, (4,), **budget),
        Kind("SIGTERM, 1,000 leaked tasks", "AsyncLeaking", ask_to_stop, (4,), **budget),
        Kind("SIGTERM, a loop of its own", "AsyncOwnLoop", ask_to_stop, (4,), **budget),
        Kind("freeze of all, coroutines", "AsyncRude", freeze, undo=thaw, within_s=THAW_S),
    )


@pytest.mark.timeout(PATIENT)
def test_a_command_is_dead_with_all_it_has_started_before_its_successors_command_begins(
    change_leaders,
):
    at_once: Any = {"takes_s": 3.0}
    asked: Any = {"takes_s": 3.0, "arguments": SOON}
    thawed: Any = {"undo": thaw, "within_s": THAW_S}
    taken_away: Any = {"takes_s": 3.0, "within_s": AT_ONCE_S}
    change_leaders(
        Kind("command, black hole", "Command", cut_off),
        Kind("command, kill -9 of the worker", "Command", kill_worker, KILLED, **at_once),
        Kind("command, kill -9 of the guardian", "Command", kill_guardian, arguments=SOON),
        # Of 1 s, a quarter is for the killing, which may be too little where much else goes on.
        Kind("command, SIGTERM", "Command", ask_to_stop, (0, 4), **asked),
        Kind("command, step-down", "Command", step_down, **asked),
        Kind("command, transfer", "Command", transfer, **asked),
        Kind("command, freeze of all", "Command", freeze, **thawed),
        Kind("command, freeze of the worker", "Command", freeze_worker, undo=thaw),
        Kind("command, znode deleted", "Command", delete_znode, **taken_away),
    )
