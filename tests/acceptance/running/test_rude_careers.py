"""No effect of a term comes after its successor's inauguration, however rude the career.

A *contest* is one career: its leader and the candidate that is to succeed it, each behind a fault
proxy of its own. A *kind* of change says what is done to the leader and what may come of it. ``make
test`` does a few kinds of change once, ``make test-long`` all kinds twice; ``make rude
CHANGES=100`` does each a hundred times (``LEADERQ_TEST_CHANGES``).
"""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from leaderq.base.clock import now_s
from leaderq.election import Operator
from leaderq.election.layout import Layout, in_line
from leaderq.testing import FaultProxy, eventually
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.testing.freezing import freeze
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Credentials, connect, end_session

CAREERS = Path(__file__).parents[1] / "careers"
KINDS = os.environ.get("LEADERQ_TEST_KINDS", "")
"""A regular expression; kinds of changes of other names are left out."""
CHANGES = int(os.environ.get("LEADERQ_TEST_CHANGES", "1"))
AT_A_TIME = 4
"""Contests side by side. With twelve, two cores cannot run what all of them start in the time of a
session: terms are lost, successors start as much again, and nobody else finds a processor.
"""
SESSION_TIMEOUT_S = 4.0
UNIT_S = 12.0
"""How long a unit takes where it is long; see ``careers/rude.py``."""
JUST_NOW_S = 0.5
"""Who has written within this time works."""
WRITERS = {
    "AsyncForking": {"unit", "fork"},
    "AsyncSwallowing": {"unit", "task", "loop", "thread"},
    "Children": {"subprocess", "multiprocessing", "daemon"},
    "Command": {"unit", "subprocess", "setsid", "daemon", "chain"},
    "Deaf": {"unit", "subprocess"},
    "LeavingChildren": {"unit", "subprocess", "multiprocessing", "daemon"},
}
"""Who works in a unit of a career, where it is not the unit alone."""


class Contender(CandidateProcess):
    """A candidate with a rude career, its proxy, and the history that its processes write."""

    def __init__(self, target: str, *, server: str, root: str, path: Path, **options: Any) -> None:
        self.proxy = FaultProxy(server).start()
        self.server, self.root, self.path = server, root, path
        self.successor = self
        self.worker = 0
        self.frozen: list[int] = []
        self._history: list[dict[str, Any]] = []
        self._offset = 0
        options |= {"cwd": CAREERS, "environment": {"HISTORY": str(self.path)}}
        options |= {"zookeeper": self.proxy.address, "session_timeout_s": SESSION_TIMEOUT_S}
        super().__init__(target, **options)

    def history(self, *whats: str, since_s: float = 0.0) -> list[dict[str, Any]]:
        """What was written since ``since_s``, newest last."""
        if self.path.exists():
            with self.path.open("rb") as file:
                file.seek(self._offset)
                *whole, rest = file.read().split(b"\n")
                self._offset = file.tell() - len(rest)
            self._history += [json.loads(line) for line in whole]
        found = [line for line in self._history if line["at"] > since_s]
        return [line for line in found if not whats or line["what"] in whats]

    def freeze(self, *pids: int) -> None:
        self.frozen = [*pids]
        freeze(*pids)

    def processes(self) -> list[int]:
        """All that have written for it and still run, stopped ones included; never a stranger."""
        pids = dict.fromkeys(line["pid"] for line in self.history())
        return [pid for pid in pids if self.is_ours(pid)]

    def clear_away(self) -> None:
        """End every process of it, and its proxy."""
        Path(f"{self.path}.over").touch()
        with suppress(OSError):
            if self.alive and not self.said("worker_overdue"):
                os.kill(self.pid, signal.SIGCONT)
                self.signal_worker(signal.SIGCONT)
                self.proxy.heal()
                self.terminate()
                with suppress(AssertionError):
                    eventually(lambda: not self.alive, timeout_s=5)
        for pid in self.processes():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        self.process.kill()
        self.wait()
        self._history.clear()
        self.proxy.stop()

    def is_ours(self, pid: int) -> bool:
        """Whether this process is there, and was started by this contender."""
        with suppress(OSError):  # the environment of one that has ended is empty
            return os.fsencode(self.path) in Path(f"/proc/{pid}/environ").read_bytes()
        return False


Act = Callable[[Contender], object]
terminate: Act = CandidateProcess.terminate


@dataclass(frozen=True)
class Kind:
    """One kind of change.

    ``career``: a class in ``careers/rude.py``, or *Command*: ``careers/rude_command.py`` as leader.
    ``act`` is done to the leader; ``undo`` once the successor leads. No effect may follow the
    successor's inauguration, unless ``within_s`` says for how long after ``act`` (or ``undo``)
    effects of the unit in hand cannot be prevented. ``exit_codes``: how the leader ends, if it
    must. ``takes_s``: until the successor leads, at most; a unit that is in hand goes on longer.
    """

    name: str
    career: str
    act: Act
    exit_codes: Sequence[int] = ()
    undo: Act | None = None
    within_s: float | None = None
    takes_s: float = 7.0
    arguments: Sequence[str] = ()


class Contest:
    """One rude career below a root of its own, and its changes of leader."""

    def __init__(self, kind: Kind, *, server: str, root: str, folder: Path) -> None:
        self.kind = kind
        self._place = {"server": server, "root": root}
        self._folder = folder
        self._contenders: list[Contender] = []
        folder.mkdir(parents=True, exist_ok=True)

    def start(self) -> Contender:
        """One more contender, which stands when this returns."""
        number, career = len(self._contenders), self.kind.career
        contender = Contender(
            "rude" if career == "Command" else f"rude:{career}",
            **self._place,
            path=self._folder / f"{number}.jsonl",
            id=f"c{number}",
            arguments=["--root", self._place["root"], "--cool-off-s", "0.2", *self.kind.arguments],
            command=[sys.executable, "rude_command.py"] if career == "Command" else (),
        )
        self._contenders.append(contender)
        contender.start()
        contender.wait_for("standing")
        return contender

    def in_the_middle_of_a_unit(self, leader: Contender) -> bool:
        """Wait until all that is to work for the term does, in a unit that has just begun.

        False: the term has ended by itself, as it does on a machine that stalls.
        """
        leader.wait_for("stage_began", stage="execution")
        leader.worker = leader.worker_pid

        def has_lost() -> bool:
            over = leader.said("term_ended") or leader.said("worker_overdue")
            return bool(over) or not leader.alive

        def is_fresh() -> bool:
            begun_s = leader.history("begin")[-1]["at"]
            since_s = min(begun_s, now_s() - JUST_NOW_S)
            working = {line["by"] for line in leader.history(since_s=since_s)}
            is_young = now_s() - begun_s < UNIT_S - self.kind.takes_s
            return is_young and working >= WRITERS.get(self.kind.career, {"unit"})

        eventually(lambda: has_lost() or is_fresh(), interval_s=0.1, message="a unit in hand")
        return not has_lost()

    def run(self, changes: int) -> list[str]:
        """So many changes, each successor the next one's leader; what any left that it must not."""
        found: list[str] = []
        try:
            leader = self.start()
            for _ in range(changes):
                successor = self.start()
                while not self.in_the_middle_of_a_unit(leader):
                    leader.clear_away()
                    leader, successor = successor, self.start()
                leader.successor = successor
                self.kind.act(leader)
                since_s = now_s()
                successor.wait_for("stage_began", stage="execution")
                if self.kind.undo is not None:
                    self.kind.undo(leader)
                    since_s = now_s()
                found += [*self._left_by(leader), *self._late(leader, successor, since_s)]
                leader.clear_away()
                leader = successor
        except AssertionError as exc:
            found.append(str(exc))
        finally:
            for contender in self._contenders:
                contender.clear_away()
        return [f"{self.kind.name}: {one}" for one in found]

    def _left_by(self, leader: Contender) -> Iterator[str]:
        """Let ``leader`` end as its kind says; complains of what it leaves running."""

        def has_ended() -> bool:
            return bool(leader.said("term_ended")) or not leader.is_ours(leader.worker)

        try:
            eventually(has_ended, timeout_s=3 * SESSION_TIMEOUT_S)
        except AssertionError:
            yield f"the term of {leader.id} did not end"
        leader.proxy.heal()  # the guardian is about to close the session
        is_to_leave = bool(self.kind.exit_codes)

        def is_done() -> bool:
            return not leader.alive or (bool(leader.said("term_ended")) and not is_to_leave)

        with suppress(AssertionError):
            eventually(is_done)  # the guardian closes the session first
        code = leader.process.poll()
        if self.kind.exit_codes and code not in self.kind.exit_codes:
            yield f"exit code {code}, not {self.kind.exit_codes[0]}"
        kept = {leader.worker_pid} if code is None else set()
        with suppress(AssertionError):
            eventually(lambda: kept.issuperset(leader.processes()), timeout_s=1)
        left = {*leader.processes()} - kept
        if left:
            names = {line["by"] for line in leader.history() if line["pid"] in left}
            yield f"left running: {', '.join(sorted(names))}"

    def _late(self, leader: Contender, successor: Contender, since_s: float) -> Iterator[str]:
        """Complains of what ``leader`` did after its successor's inauguration."""
        first = eventually(lambda: successor.history("inaugurate"))[0]
        after = leader.history("begin", "effect", since_s=first["at"])
        effects = [line["at"] for line in after if line["term"] < first["term"]]
        from_s = first["at"] if self.kind.within_s is None else since_s
        begun = sum(line["what"] == "begin" for line in after)
        late_s = [at - from_s for at in effects if at - from_s > (self.kind.within_s or 0.0)]
        # Nothing stops a unit that was frozen between the look at the clock and its first line.
        if begun > (self.kind.undo is not None):
            yield f"{begun} units begun"
        if late_s:
            yield f"{len(late_s)} effects, the last {max(late_s):.3f} s late"


THAW_S = 0.1 + 0.1 * patience()
"""What is promised after a thaw, and what a busy machine takes to act."""
AT_ONCE_S = SESSION_TIMEOUT_S / 3
"""Where ZooKeeper lets the next one lead at once: a guardian's SIGKILL comes after T/6."""
KILLED = (1,)
pytestmark = pytest.mark.timeout(180 + 90 * CHANGES)
SOON = ("--handover-budget-s", "1")


# ---- what is done to a leader ---------------------------------------------------------------


def cut_off(leader: Contender) -> None:
    leader.proxy.black_hole()


def cut_off_alone(leader: Contender) -> None:
    """While the guardian is stopped: the worker must leave by itself."""
    leader.freeze(leader.pid)
    cut_off(leader)


def hog(leader: Contender) -> None:
    Path(f"{leader.path}.go").touch()


def kill_worker(leader: Contender) -> None:
    leader.signal_worker(signal.SIGKILL)


def kill_guardian(leader: Contender) -> None:
    os.kill(leader.pid, signal.SIGKILL)


def ask_to_stop_and_cut_off(leader: Contender) -> None:
    leader.terminate()
    leader.wait_for("term_ending")
    cut_off(leader)


def step_down(leader: Contender) -> None:
    with connect(leader.server) as session:
        Operator(session, "rude", root=leader.root).step_down(timeout_s=60 * patience())


def transfer(leader: Contender) -> None:
    with connect(leader.server) as session:
        operator = Operator(session, "rude", root=leader.root)
        operator.transfer(leader.successor.id, timeout_s=60 * patience())


def freeze_all(leader: Contender) -> None:
    leader.freeze(leader.pid, leader.worker_pid, *leader.processes())


def freeze_worker_and_children(leader: Contender) -> None:
    leader.freeze(leader.worker_pid, *leader.processes())


def freeze_worker(leader: Contender) -> None:
    leader.freeze(leader.worker_pid)


def thaw(leader: Contender) -> None:
    for pid in leader.frozen:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def delete_znode(leader: Contender) -> None:
    folder = Layout(leader.root, "rude").candidates
    with connect(leader.server) as admin:
        admin.delete(f"{folder}/{in_line(admin.children(folder))[0]}")


def close_session(leader: Contender) -> None:
    """Close the session with what the server told its owner when that connected again."""
    told: list[bytes] = []
    leader.proxy.drop_replies(lambda reply: told.append(reply) and False)
    leader.proxy.cut()
    welcome = eventually(lambda: next(reply for reply in told if reply[16:20] == b"\0\0\0\x10"))
    leader.proxy.heal()
    credentials = Credentials(int.from_bytes(welcome[8:16], "big"), welcome[20:36])
    assert end_session(leader.server, credentials, timeout_s=30)


# ---- changes of leader ----------------------------------------------------------------------


@pytest.fixture(params=["some", "all"])
def change_leaders(request, zookeeper_server, znode_root, tmp_path):
    """Do changes of these kinds, or of every fourth, and fail if one left what it must not."""

    def one(number: int, kind: Kind) -> list[str]:
        place: Any = {"root": f"{znode_root}-{number}", "folder": tmp_path / str(number)}
        return Contest(kind, server=zookeeper_server.address, **place).run(CHANGES)

    def change(*kinds: Kind) -> None:
        kinds = kinds if request.param == "all" else kinds[::4]
        wanted = [kind for kind in kinds if re.search(KINDS, kind.name)]
        with ThreadPoolExecutor(AT_A_TIME) as pool:  # contests side by side
            bad = [said for found in pool.map(one, itertools.count(), wanted) for said in found]
        if bad:
            pytest.fail("\n".join(bad), pytrace=False)

    return change


def test_a_leader_that_hears_nothing_or_runs_no_python_ends_before_its_successors_inauguration(
    change_leaders,
):
    change_leaders(
        Kind("black hole, a unit of 12 s", "LongUnits", cut_off, KILLED),
        Kind("black hole, units of 1 ms", "TinyUnits", cut_off),
        Kind("black hole, nothing is heard", "Deaf", cut_off, KILLED),
        Kind("GIL held, a child", "GilHog", hog, KILLED),
        Kind("black hole, children", "Children", cut_off, KILLED),
        Kind("black hole, children left behind", "LeavingChildren", cut_off),
        # The worker leaves by itself (4) at the very moment at which it is killed (1).
        Kind("black hole, a hand-over without end", "NeverHandsOver", cut_off, (1, 4)),
        Kind("black hole, guardian stopped", "LongUnits", cut_off_alone, (4,), undo=thaw),
        # Its supervisor's SIGTERM and its guardian's are not "leave at once", which would be 130.
        Kind("SIGTERM, then black hole", "LongUnits", ask_to_stop_and_cut_off, KILLED),
    )


def test_a_thawed_leader_begins_nothing_and_its_unit_ends_within_a_tenth_of_a_second(
    change_leaders,
):
    thawed: Any = {"undo": thaw, "within_s": THAW_S}
    # Children end while their worker is stopped, so its unit may return in time.
    change_leaders(
        Kind("freeze of all, a unit of 12 s", "LongUnits", freeze_all, KILLED, **thawed),
        Kind("freeze of all, units of 1 ms", "TinyUnits", freeze_all, **thawed),
        Kind("freeze of all, children", "Children", freeze_all, **thawed),
        Kind("freeze of the worker, units of 1 ms", "TinyUnits", freeze_worker, **thawed),
        Kind("freeze of the worker, children go on", "Children", freeze_worker, undo=thaw),
        Kind("freeze of the worker, a unit of 12 s", "LongUnits", freeze_worker, KILLED, **thawed),
        Kind("freeze of worker and children", "Children", freeze_worker_and_children, **thawed),
    )


def test_what_was_started_in_a_term_ends_before_the_next_inauguration(change_leaders):
    at_once: Any = {"takes_s": 3.0}
    budget: Any = {"takes_s": 3.0, "arguments": SOON}
    # Where ZooKeeper lets the next one lead at once only a bound can be promised.
    taken_away: Any = {"takes_s": 3.0, "within_s": AT_ONCE_S}
    change_leaders(
        Kind("kill -9 of the worker, children", "Children", kill_worker, KILLED, **at_once),
        Kind("kill -9 of the worker, a unit of 12 s", "LongUnits", kill_worker, KILLED, **at_once),
        Kind("SIGTERM, children", "Children", terminate, (4,), **budget),
        Kind("SIGTERM, a hand-over without end", "NeverHandsOver", terminate, (4,), **budget),
        Kind("kill -9 of the guardian, children", "Children", kill_guardian, arguments=SOON),
        Kind("kill -9 of the guardian, a unit of 12 s", "LongUnits", kill_guardian, arguments=SOON),
        Kind("kill -9 of the guardian, units of 1 ms", "TinyUnits", kill_guardian),
        Kind("kill -9 of the guardian, children left behind", "LeavingChildren", kill_guardian),
        Kind("step-down, children left behind", "LeavingChildren", step_down, **at_once),
        Kind("znode deleted, a unit of 12 s", "LongUnits", delete_znode, KILLED, **taken_away),
        Kind("znode deleted, children", "Children", delete_znode, KILLED, **taken_away),
        Kind("session closed, a unit of 12 s", "LongUnits", close_session, KILLED, **taken_away),
    )


def test_a_loop_and_all_that_coroutines_have_begun_end_before_the_next_inauguration(change_leaders):
    budget: Any = {"takes_s": 3.0, "arguments": SOON}
    change_leaders(
        Kind("black hole, time.sleep in a coroutine", "AsyncSleeping", cut_off, KILLED),
        Kind("black hole, cancellation swallowed", "AsyncSwallowing", cut_off, KILLED),
        Kind("black hole, os.fork", "AsyncForking", cut_off),
        Kind("SIGTERM, time.sleep in a coroutine", "AsyncSleeping", terminate, (4,), **budget),
        Kind("SIGTERM, cancellation swallowed", "AsyncSwallowing", terminate, (4,), **budget),
        Kind("SIGTERM, os.fork", "AsyncForking", terminate, (0,), **budget),
        Kind("freeze of all, coroutines", "AsyncRude", freeze_all, undo=thaw, within_s=THAW_S),
    )


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
        Kind("command, SIGTERM", "Command", terminate, (0, 4), **asked),
        Kind("command, step-down", "Command", step_down, **asked),
        Kind("command, transfer", "Command", transfer, **asked),
        Kind("command, freeze of all", "Command", freeze_all, **thawed),
        Kind("command, freeze of the worker", "Command", freeze_worker, undo=thaw),
        Kind("command, znode deleted", "Command", delete_znode, **taken_away),
    )
