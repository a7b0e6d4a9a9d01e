"""The targets of a nemesis: servers, proxies, candidates and their supervisor. Also observes
them.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leaderq.base.arguments import above_0, require
from leaderq.base.exits import ExitCode
from leaderq.election import Observer, Operator, View
from leaderq.election.layout import Layout
from leaderq.errors import ConfigurationError, LeaderqError
from leaderq.running.descendants import children_of
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.testing.fault_proxy import FaultProxy
from leaderq.testing.nemesis.careers import CAREER, SEED, SPARED
from leaderq.testing.nemesis.history import FOLDER, REGISTER, History, What
from leaderq.testing.server import all_at_once
from leaderq.testing.waiting import eventually
from leaderq.testing.zookeeper_server import ZooKeeperEnsemble
from leaderq.zookeeper import Delete, GetData, Session, connect

NAME: Final = "nemesis"
NAMES: Final = ("a", "b", "c", "d", "e")
SPARED_ONE: Final = "e"
"""The candidate that is neither killed nor frozen: leaks show in a process that lives long."""

_TARGET: Final = "leaderq.testing.nemesis.careers:Recorded"
_LOOK_S: Final = 0.25
_SAMPLE_EVERY: Final = 8  # looks


@dataclass(frozen=True)
class NemesisOptions:
    """What to run, and for how long.

    ``seed`` determines the schedule of faults. ``career`` is ``module:Class``, looked for in
    ``cwd``. ``session_timeout_s`` is T. ``arguments`` are further options of ``leaderq run``, such
    as ``("--kafka", "host:9092")``. ``folder`` gets the history and the logs, and must not have a
    history yet; by default it is a temporary folder that is kept.
    """

    seed: int
    career: str
    minutes: float = 3.0
    session_timeout_s: float = 5.0
    arguments: Sequence[str] = ()
    cwd: Path | str = "."
    root: str = "/nemesis"
    folder: Path = field(default_factory=lambda: Path(tempfile.mkdtemp(prefix=f"leaderq-{NAME}-")))

    def __post_init__(self) -> None:
        require(
            above_0("minutes", self.minutes),
            above_0("session_timeout_s", self.session_timeout_s, "seconds"),
        )

    @property
    def handover_budget_s(self) -> float:
        """Long enough for most units that last longer than a lease, and too short for some."""
        return 1.5 * self.session_timeout_s


class Cluster:
    """Five candidates; each has its own proxy for each server of ``ensemble``. A context manager.

    ``history`` receives what the cluster sees; ``view`` is the newest view.
    """

    def __init__(self, options: NemesisOptions, ensemble: ZooKeeperEnsemble) -> None:
        self.options = options
        self.ensemble = ensemble
        options.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = options.folder / "history.jsonl"
        if path.exists():
            raise ConfigurationError(f"there is a history already: {path}; name another folder")
        self.history = History(path)
        self.proxies: dict[str, list[FaultProxy]] = {}
        self.candidates: dict[str, CandidateProcess] = {}
        self._ended: list[CandidateProcess] = []
        self.view: View | None = None
        self._register = f"{options.root}/register"
        self._layout = Layout(options.root, NAME)
        self._accepted = -1
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=task, name=f"nemesis{task.__name__}", daemon=True)
            for task in (self._supervise, self._look_on)
        ]
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Cluster:
        with contextlib.ExitStack() as starting:
            starting.callback(self._end_all)
            session = connect(self.ensemble.address, timeout_s=30)
            self.session: Session = starting.enter_context(session)
            self.session.ensure_path(self._register)
            self.observer = Observer(self.session, NAME, root=self.options.root)
            self.operator = Operator(self.session, NAME, root=self.options.root)
            for who in NAMES:
                proxies = [FaultProxy(address) for address in self.ensemble.address.split(",")]
                self.proxies[who] = [starting.enter_context(proxy) for proxy in proxies]
                self._start(who)
            for thread in self._threads:
                thread.start()
            self._cleanup = starting.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()  # nobody is started again
        all_at_once(CandidateProcess.stop, list(self.candidates.values()))
        self._cleanup.close()

    # -- processes ---------------------------------------------------------------------------------

    def guardian(self, who: str) -> int:
        return self.candidates[who].pid

    def worker(self, who: str) -> int | None:
        try:
            children = sorted(children_of(self.guardian(who)))  # the worker is the oldest
            return next((pid for pid in children if os.getpgid(pid) == pid), None)
        except OSError:
            return None

    def has_ended(self) -> bool:
        """Whether a candidate has ended. While all is well, none does."""
        return bool(self._ended) or not all(each.alive for each in self.candidates.values())

    def last_words(self) -> str:
        """The last lines logged by each candidate that has ended, or by all if none has."""
        started = [*self._ended, *self.candidates.values()]
        ended = [each for each in started if not each.alive]
        for candidate in ended:
            candidate.wait()  # for the last of its log
        lines = [
            f"{candidate.id}: {line.get('time', '')} {line['message']}"
            for candidate in ended or started
            for line in candidate.lines[-6:]
        ]
        return "\n".join(dict.fromkeys(lines))

    def _start(self, who: str) -> None:
        options = self.options
        environment = {
            FOLDER: str(options.folder.resolve()),
            CAREER: options.career,
            SEED: str(options.seed),
            REGISTER: self._register,
            **({SPARED: "1"} if who == SPARED_ONE else {}),
        }
        self.candidates[who] = CandidateProcess(
            _TARGET,
            id=who,
            zookeeper=",".join(proxy.address for proxy in self.proxies[who]),
            cwd=options.cwd,
            session_timeout_s=options.session_timeout_s,
            arguments=[
                *("--career", NAME, "--root", options.root),
                *("--cool-off-s", "0.2", "--yield-s", "1"),
                *("--handover-budget-s", str(options.handover_budget_s)),
                *("--connect-timeout-s", "60"),  # who is started without a quorum waits for one
                *options.arguments,
            ],
            environment=environment,
        ).start()

    def _supervise(self) -> None:
        """Restart candidates that end, as systemd or Kubernetes do, except one that cannot run."""
        while not self._stopping.wait(0.1):
            for who, candidate in list(self.candidates.items()):
                if candidate.process.poll() not in (None, ExitCode.USAGE):
                    self._ended.append(candidate)
                    self._start(who)

    def _keep_log(self, candidate: CandidateProcess) -> None:
        with (self.options.folder / f"{candidate.id}.log").open("a") as log:
            for line in candidate.lines:
                text = f"{line['message']} {line.get('traceback', '')}"
                log.write(f"{line.get('time', '')} {candidate.pid} {text}\n")

    def _end_all(self) -> None:
        """Keep the logs, and kill every process whose environment names our folder, and so no
        stranger's.
        """
        for candidate in [*self._ended, *self.candidates.values()]:
            self._keep_log(candidate)
        mark = f"{FOLDER}={self.options.folder.resolve()}\0".encode()
        for environment in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                pid = int(environment.parent.name)
                if pid != os.getpid() and mark in environment.read_bytes():
                    os.kill(pid, signal.SIGKILL)

    # -- looking on --------------------------------------------------------------------------------

    def all_stand(self) -> bool:
        """Whether each candidate stands exactly once."""
        return sorted(self.observer.view().candidates) == list(NAMES)

    def _look_on(self) -> None:
        looks = 0
        while not self._stopping.wait(_LOOK_S):
            with contextlib.suppress(LeaderqError):  # there is no quorum, perhaps for long
                self._look()
            looks += 1
            if looks % _SAMPLE_EVERY == 0:
                self._sample()

    def _look(self) -> None:
        before, view = self.view, self.observer.view()
        self.view = view
        if view.leader is not None and (before is None or before.term != view.term):
            self.history.append(What.LEADER, who=view.leader, pid=view.pid or 0, term=view.term)
        self.read_register()

    def read_register(self) -> None:
        """Note the fenced writes that were accepted since the last call, in their order, and delete
        them.
        """
        names = sorted(self.session.children(self._register))
        for first in range(0, len(names), 100):
            paths = [f"{self._register}/{name}" for name in names[first : first + 100]]
            found = self.session.multi_read([GetData(path) for path in paths])
            for path, result in zip(paths, found, strict=True):
                number = int(path.rpartition("-")[2])
                if isinstance(result, tuple) and number > self._accepted:
                    self._accepted = number
                    self.history.append(What.ACCEPTED, number=number, term=int(result[0]))
            self.session.multi([Delete(path) for path in paths])

    def delete_znodes(self, who: str) -> None:
        """Delete the znodes of candidate ``who`` in the line, as an operator might by mistake."""
        for name in self.session.children(self._layout.candidates):
            path = self._layout.candidate(name)
            if self.session.get(path)[0].decode() == who:
                self.session.delete(path)

    def _sample(self) -> None:
        for who in NAMES:
            for role, pid in (("guardian", self.guardian(who)), ("worker", self.worker(who) or 0)):
                with contextlib.suppress(OSError, KeyError):  # it has just ended, or there is none
                    sizes = _sizes(pid)
                    self.history.append(What.SAMPLE, who=who, pid=pid, why=role, sizes=sizes)


def _sizes(pid: int) -> dict[str, int]:
    status = Path(f"/proc/{pid}/status").read_text().splitlines()
    values = dict(line.split(":", 1) for line in status)
    return {
        "threads": int(values["Threads"]),
        "descriptors": len(os.listdir(f"/proc/{pid}/fd")),  # noqa: PTH208  (a count, not paths)
        "memory_kb": int(values["VmRSS"].split()[0]),
    }


def held_within(fact: Callable[[], object], timeout_s: float) -> bool:
    """Whether ``fact`` becomes true within ``timeout_s`` (times the patience)."""
    try:
        eventually(fact, timeout_s=timeout_s, interval_s=0.1)
    except AssertionError:
        return False
    return True
