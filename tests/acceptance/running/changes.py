"""Changes of leader of rude careers, one after the other or many side by side, and what they left.

A *contest* is one career: its leader and the candidate that is to succeed it, each behind a fault
proxy of its own. A *kind* of change says what is done to the leader and what may come of it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from leaderq.base.clock import now_s
from leaderq.testing import FaultProxy, eventually
from leaderq.testing.candidate_process import CandidateProcess

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
    "Children": {"subprocess", "multiprocessing"},
    "Command": {"unit", "subprocess", "setsid", "daemon", "chain"},
    "Daemonizing": {"daemon"},
    "Deaf": {"unit", "subprocess"},
    "LeavingChildren": {"unit", "subprocess", "multiprocessing", "daemon"},
}
"""Who works in a unit of a career, where it is not the unit alone."""


class Contender(CandidateProcess):
    """A candidate with a rude career, its proxy, and the history that its processes write."""

    def __init__(self, target: str, *, server: str, path: Path, **options: Any) -> None:
        self.proxy = FaultProxy(server).start()
        self.path = path
        self.worker = 0
        self.frozen: list[int] = []
        self._history: list[dict[str, Any]] = []
        self._offset = 0
        options["environment"] = {"HISTORY": str(self.path), **options.pop("environment", {})}
        options.setdefault("session_timeout_s", SESSION_TIMEOUT_S)
        super().__init__(target, zookeeper=self.proxy.address, cwd=CAREERS, **options)

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

    def await_execution(self) -> None:
        """Wait until it leads, and may begin units."""
        self.wait_for("stage_began", stage="execution")

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
        with suppress(OSError):
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            environment = Path(f"/proc/{pid}/environ").read_bytes()
            return state not in "ZX" and os.fsencode(self.path) in environment
        return False


Act = Callable[["Contest", Contender], object]


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


@dataclass
class Change:
    """What one change left behind."""

    kind: Kind
    complaints: list[str] = field(default_factory=list)


class Contest:
    """One rude career below a root of its own, and its changes of leader."""

    def __init__(self, kind: Kind, *, server: str, root: str, folder: Path) -> None:
        self.kind = kind
        self.server = server
        self.root = root
        self._folder = folder
        self._contenders: list[Contender] = []
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def newest(self) -> Contender:
        """The contender that was started last."""
        return self._contenders[-1]

    def start(self, **options: Any) -> Contender:
        """One more contender, which stands when this returns."""
        number = len(self._contenders)
        arguments = ["--root", self.root, "--cool-off-s", "0.2", *self.kind.arguments]
        options = {"id": f"c{number}", "arguments": arguments, **options}
        path = self._folder / f"{number}.jsonl"
        if self.kind.career == "Command":
            command = [sys.executable, "rude_command.py"]
            contender = Contender("rude", server=self.server, path=path, command=command, **options)
        else:
            target = f"rude:{self.kind.career}"
            contender = Contender(target, server=self.server, path=path, **options)
        self._contenders.append(contender)
        contender.start()
        contender.wait_for("standing")
        return contender

    def in_the_middle_of_a_unit(self, leader: Contender) -> bool:
        """Wait until all that is to work for the term does, in a unit that has just begun.

        False: the term has ended by itself, as it does on a machine that stalls.
        """
        leader.await_execution()
        leader.worker = leader.worker_pid

        def has_lost() -> bool:
            return (
                bool(leader.said("term_ended") or leader.said("worker_overdue")) or not leader.alive
            )

        def is_fresh() -> bool:
            begun_s = leader.history("begin")[-1]["at"]
            since_s = min(begun_s, now_s() - JUST_NOW_S)
            working = {line["by"] for line in leader.history(since_s=since_s)}
            is_young = now_s() - begun_s < UNIT_S - self.kind.takes_s
            return is_young and working >= WRITERS.get(self.kind.career, {"unit"})

        eventually(
            lambda: has_lost() or is_fresh(),
            interval_s=0.1,
            message=f"{self.kind.name}: a unit in hand",
        )
        return not has_lost()

    def change(self, leader: Contender, successor: Contender) -> Change:
        """Do to ``leader`` what the kind says, until ``successor`` leads; see :meth:`look`."""
        self.kind.act(self, leader)
        since_s = now_s()
        successor.await_execution()
        if self.kind.undo is not None:
            self.kind.undo(self, leader)
            since_s = now_s()
        return self.look(leader, successor, since_s)

    def look(self, leader: Contender, successor: Contender, since_s: float) -> Change:
        """What ``leader``, which was one, left behind; see :class:`Kind`."""
        change = Change(self.kind)
        self._await_end(leader, change)
        self._judge(leader, successor, since_s, change)
        return change

    def run(self, changes: int) -> list[Change]:
        """So many changes, each successor the next one's leader; what fails is the last one's."""
        found: list[Change] = []
        try:
            leader = self.start()
            for _ in range(changes):
                successor = self.start()
                while not self.in_the_middle_of_a_unit(leader):
                    leader.clear_away()
                    leader, successor = successor, self.start()
                found.append(self.change(leader, successor))
                leader.clear_away()
                leader = successor
        except AssertionError as exc:
            found.append(Change(self.kind, complaints=[str(exc)]))
        return found

    def __enter__(self) -> Contest:
        return self

    def __exit__(self, *_: object) -> None:
        for contender in self._contenders:
            contender.clear_away()

    def _await_end(self, leader: Contender, change: Change) -> None:
        def has_ended() -> bool:
            return bool(leader.said("term_ended")) or not leader.is_ours(leader.worker)

        try:
            eventually(has_ended, timeout_s=3 * SESSION_TIMEOUT_S)
        except AssertionError:
            change.complaints.append(f"the term of {leader.id} did not end")
        leader.proxy.heal()  # the guardian is about to close the session
        is_to_leave = bool(self.kind.exit_codes)

        def is_done() -> bool:
            return not leader.alive or (bool(leader.said("term_ended")) and not is_to_leave)

        with suppress(AssertionError):
            eventually(is_done)  # the guardian closes the session first
        code = leader.process.poll()
        if self.kind.exit_codes and code not in self.kind.exit_codes:
            change.complaints.append(f"exit code {code}, not {self.kind.exit_codes[0]}")
        kept = {leader.worker_pid} if code is None else set()
        with suppress(AssertionError):
            eventually(lambda: kept.issuperset(leader.processes()), timeout_s=1)
        left = {*leader.processes()} - kept
        names = {line["by"] for line in leader.history() if line["pid"] in left}
        change.complaints += [f"left running: {', '.join(sorted(names))}"] if left else []

    def _judge(
        self, leader: Contender, successor: Contender, since_s: float, change: Change
    ) -> None:
        first = eventually(lambda: successor.history("inaugurate"))[0]
        after = leader.history("begin", "effect", since_s=first["at"])
        effects = [line["at"] for line in after if line["term"] < first["term"]]
        from_s = first["at"] if self.kind.within_s is None else since_s
        begun = sum(line["what"] == "begin" for line in after)
        late_s = [at - from_s for at in effects if at - from_s > (self.kind.within_s or 0.0)]
        # Nothing stops a unit that was frozen between the look at the clock and its first line.
        if begun > (self.kind.undo is not None):
            change.complaints.append(f"{begun} units begun")
        if late_s:
            change.complaints.append(f"{len(late_s)} effects, the last {max(late_s):.3f} s late")


def run_all(kinds: Sequence[Kind], *, server: str, root: str, folder: Path) -> list[Change]:
    """``CHANGES`` changes of each kind that is wanted, contests side by side."""

    def one(number: int, kind: Kind) -> list[Change]:
        place: Any = {"root": f"{root}-{number}", "folder": folder / str(number)}
        with Contest(kind, server=server, **place) as contest:
            return contest.run(CHANGES)

    wanted = [kind for kind in kinds if re.search(KINDS, kind.name)]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        running = [pool.submit(one, number, kind) for number, kind in enumerate(wanted)]
    return [change for each in running for change in each.result()]
