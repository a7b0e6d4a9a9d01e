"""Ensembles whose follower is stalled and then lost, and careers whose leaders stand beside it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from uuid import uuid4

from electorate import Electorate, is_believed, term_of

from leaderq import Candidate, Session, connect
from leaderq.clock import now_s
from leaderq.term import OpenTerm
from leaderq.testing import ZooKeeperEnsemble, ZooKeeperServer, eventually
from leaderq.testing.candidate_process import CandidateProcess
from leaderq.testing.nemesis.careers import CAREER
from leaderq.testing.nemesis.history import FOLDER, What, read
from leaderq.testing.server import all_at_once
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Check

CAREERS = Path(__file__).parents[1] / "careers"
TIMEOUT_S = 4.0
STALL_S = 0.55 * TIMEOUT_S


class Loss(Enum):
    """How a follower is lost after a stall."""

    DEAF_HEAD = "the servers' leader hears nothing more of it when it goes on"
    STOPPED = "it was stopped itself, and is again when it has answered"


class Servers:
    """Three linked servers with ``ticks`` ticks in T. A context manager."""

    def __init__(self, ticks: int) -> None:
        # Who is cut off serves its clients for longer than any session lives.
        self.tick_s = TIMEOUT_S / ticks
        limits = {"initLimit": "60", "syncLimit": "60", "forceSync": "no"}
        settings = {"tickTime": f"{self.tick_s * 1000:.0f}", **limits}
        self.ticks = ticks
        self.ensemble = ZooKeeperEnsemble(linked=True, settings=settings)

    def __enter__(self) -> Servers:
        self.ensemble.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.ensemble.stop()

    def choose(self) -> tuple[ZooKeeperServer, ZooKeeperServer, ZooKeeperServer]:
        """The leader of the servers, the follower to lose, and the other one."""
        eventually(lambda: len(self.ensemble.followers) == 2)
        one, other = self.ensemble.followers
        return self.ensemble.leader, one, other

    @contextlib.contextmanager
    def healed(self) -> Iterator[None]:
        """Heal all at the end."""
        try:
            yield
        finally:
            self.ensemble.heal()

    def lose(self, loss: Loss, beside: Session) -> None:
        """Stall the first follower, let it go on, and lose it as soon as ``beside``, a session with
        it, has had a late answer.
        """
        head, follower, _ = self.choose()
        way = self.ensemble.link(head, follower)
        is_stop = loss is Loss.STOPPED
        follower.freeze() if is_stop else way.stall()
        time.sleep(STALL_S / 2)
        late = beside.multi_async([Check("/")])
        time.sleep(STALL_S / 2)
        if loss is Loss.DEAF_HEAD:
            self.ensemble.link(follower, head).lose()
        follower.thaw() if is_stop else way.release()
        late.result(5 * patience())
        follower.freeze() if is_stop else way.cut()


class Believer:
    """Asks a term each 2 ms whether it may act. A context manager."""

    def __init__(self, term: OpenTerm) -> None:
        self._term = term
        self._passed_s: list[float] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask, daemon=True)

    def passed_since(self, at_s: float) -> float:
        """For how long after ``at_s`` it passed, in seconds."""
        return max([0.0, *(passed_s - at_s for passed_s in self._passed_s)])

    def __enter__(self) -> Believer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _ask(self) -> None:
        while not self._is_over.wait(0.002):
            asked_s = now_s()
            if is_believed(self._term):
                self._passed_s.append(asked_s)


def overlaps(servers: Servers, root: str, loss: Loss, careers: int) -> list[float]:
    """One stall and loss; for how long ``check()`` passed in each old term beside the new one."""
    head, follower, _ = servers.choose()
    with contextlib.ExitStack() as stack:
        elections = []
        for number in range(careers):
            electorate = Electorate(head.address, f"{root}/{number}")
            stack.callback(electorate.close)
            a = electorate.candidate("a", address=follower.address, timeout_s=TIMEOUT_S)
            b = electorate.candidate("b", address=head.address)
            believer = stack.enter_context(Believer(electorate.lead(a)))
            electorate.wait_in_line(b)
            elections.append((electorate, b, believer))
        beside = elections[0][0].session(address=follower.address)
        stack.callback(servers.ensemble.heal)
        pool = stack.enter_context(ThreadPoolExecutor(careers))
        leading = [pool.submit(won_s, b) for _, b, _ in elections]
        servers.lose(loss, beside)
        led_s = [each.result() for each in leading]
        time.sleep(TIMEOUT_S / 3)
        believers = [believer for _, _, believer in elections]
        return [
            believer.passed_since(at_s) for believer, at_s in zip(believers, led_s, strict=True)
        ]


def won_s(candidate: Candidate) -> float:
    """When a candidate wins a term, on the clock of leases."""
    term_of(candidate)
    return now_s()


class Worker(CandidateProcess):
    """A worker whose units never ask, under a guardian."""

    def __init__(self, id: str, address: str, folder: Path) -> None:
        arguments = ["--root", f"/{folder.parent.name}-{folder.name}", "--career", "c"]
        super().__init__(
            "leaderq.testing.nemesis.careers:Recorded",
            id=id,
            zookeeper=address,
            cwd=CAREERS,
            session_timeout_s=TIMEOUT_S,
            arguments=[*arguments, "--handover-budget-s", "0.5"],
            environment={FOLDER: str(folder), CAREER: "never_asks:Stubborn"},
        )

    @property
    def leads(self) -> bool:
        """Whether it was inaugurated."""
        return bool(self.said("stage_began", stage="inauguration"))


class Contest:
    """One career of such workers, which write one history."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self.workers: list[Worker] = []

    def start(self, id: str, address: str) -> Worker:
        """One more worker; the first one leads when this returns, the others stand."""
        worker = Worker(id, address, self._folder)
        self.workers.append(worker)
        worker.start()
        worker.wait_for("standing")
        if worker is self.workers[0]:
            worker.wait_for("stage_began", stage="execution")
        return worker

    def effects_beside(self, leader: Worker) -> int:
        """How many effects of other terms came after the inauguration of ``leader``'s."""
        count, term = 0, 0
        for line in read(self._folder / "history.jsonl"):
            if line.what is What.INAUGURATED and line.who == leader.id:
                term = line.term
            count += line.what is What.EFFECT and line.term < term
        return count


@contextlib.contextmanager
def contests(folder: Path, careers: int) -> Iterator[list[Contest]]:
    """So many careers; what they have started is stopped."""
    made = [Contest(folder / uuid4().hex) for _ in range(careers)]
    try:
        yield made
    finally:
        all_at_once(Worker.stop, [worker for one in made for worker in one.workers])


def each(stand: list[Contest], id: str, address: str) -> list[Worker]:
    """A worker more in each career."""
    with ThreadPoolExecutor(len(stand)) as pool:
        return list(pool.map(lambda one: one.start(id, address), stand))


def effects_beside(stand: list[Contest], successors: list[Worker]) -> list[int]:
    """The effects beside each successor, once all lead and leases of others are over."""
    eventually(lambda: all(one.leads for one in successors))
    time.sleep(TIMEOUT_S / 2)
    return [one.effects_beside(next) for one, next in zip(stand, successors, strict=True)]


def effects_after_stall(servers: Servers, folder: Path, loss: Loss, careers: int) -> list[int]:
    """One stall and loss; the effects of each old term beside the new one."""
    head, follower, _ = servers.choose()
    with contests(folder, careers) as stand, servers.healed():
        each(stand, "a", follower.address)
        successors = each(stand, "b", head.address)
        with connect(follower.address, timeout_s=30) as beside:
            servers.lose(loss, beside)
            return effects_beside(stand, successors)
