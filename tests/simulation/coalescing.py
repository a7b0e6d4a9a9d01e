"""Lives of distributed coalescing: processes that ask for a few keys, under faults drawn from the
seed, and what must not stand in their histories.

Of a key, one works and one waits; whoever is declined is covered: a run begins after it asked. No
two believe at one moment to be the head; fenced writes never fall back to a former head's; nothing
is left that belongs to nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from leaderq.base import clock
from leaderq.coalescing import EnqueueOutcome
from leaderq.coalescing.distributed.coordinator import DistributedQueueCoordinator
from leaderq.coalescing.distributed.slots import DistributedToken
from leaderq.errors import LeaderqError
from leaderq.testing.nemesis.history import Kind
from leaderq.testing.simulation.faults import Faults
from leaderq.testing.simulation.primitives import SimulatedEvent
from leaderq.threads import primitives
from leaderq.zookeeper import Create, Session
from simulation.led import Led, Life
from simulation.programs import FAULTS, FaultNotes, Program

ROOT, WRITES = "/keys", "/writes"
_LOOK_S = 0.5
_CALM_S = 60.0


class Turn(Enum):
    """What a line tells of a request for a key."""

    ASKED = "asked"
    BEGUN = "begun"  # its run; ``number``: of its token
    BELIEVED = "believed"  # by the one who had it, to be the head's
    RELEASED = "released"  # by the one who had it
    STOOD = "stood"  # it was told that its token stood until it was released
    DECLINED = "declined"
    FAILED = "failed"  # it was told so, or waited in vain
    DIED = "died"  # a process
    WRITTEN = "written"  # by ZooKeeper's order, at the end
    LEFT = "left"  # in ZooKeeper at the end


@dataclass(frozen=True, slots=True)
class TurnLine:
    """``request``: of its process. ``number``: the fencing number of a token."""

    at_s: float
    what: Turn
    who: str = ""
    key: str = ""
    request: int = 0
    number: int = 0


@dataclass(frozen=True, slots=True)
class CoalescingLife(Life):
    """A life of coalescing. ``requests``: of each of the ``threads`` of each process."""

    seconds: float = 10.0
    kinds: Sequence[Any] = FAULTS
    processes: int = 3
    threads: int = 2
    requests: int = 8
    keys: int = 2


class _Led(Led[CoalescingLife]):
    """The processes of one life, and their recorder."""

    def __init__(self, life: CoalescingLife) -> None:
        super().__init__(life)
        self.lines: list[TurnLine] = []
        self.programs: list[Program] = []
        self._number = 0
        self._ended: set[int] = set()

    def note(self, what: Turn, key: str = "", request: int = 0, number: int = 0) -> None:
        task = self.world.current
        if self.world.over or task is None or not task.process.alive:
            return
        who = task.process.name
        self._add(TurnLine(self.world.now_s, what, who, key, request, number))

    def fault(self, who: str, values: dict[str, Any]) -> None:
        """A session that an operator ends before its time: what relies on its time-out may be
        wrong then.
        """
        if values["kind"] is Kind.END_SESSION:
            worker = next(one for one in self.cluster.workers if one.name == who)
            self._ended.add((worker.session and worker.session.id) or 0)

    def _add(self, line: TurnLine) -> None:
        self.lines.append(line)
        said = {"key": line.key, "request": line.request, "number": line.number}
        self.world.note(line.what.value, process=line.who, **said)

    def process(self, number: int, left: list[list[int]], session: Session) -> None:
        """One incarnation of a process: ``left`` says how many requests each thread has yet."""
        program = self.programs[number]
        while True:
            try:
                session.ensure_path(WRITES)
                break
            except LeaderqError:
                clock.sleep(_LOOK_S)
        owner: list[DistributedQueueCoordinator] = []
        made = DistributedQueueCoordinator(
            session, ROOT, timeout_s=20.0, cover=partial(self._cover, owner)
        )
        owner.append(made)
        name = program.process.name
        program.process.deaths.append(partial(self._died, name, made))
        threads = [
            primitives.Thread(target=partial(self._ask, made, session, one), name=f"asks{number}")
            for number, one in enumerate(left)
        ]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        cover = made._coverage
        while cover is not None and (cover._watched or cover._owed or made._requests or made._held):
            clock.sleep(_LOOK_S)
        program.is_done = True  # not to be started again; its session stays, and what it has left
        SimulatedEvent().wait()

    def _died(self, who: str, coordinator: DistributedQueueCoordinator) -> None:
        """Its runs that have begun, and could not say so."""
        known = {one.number for one in self.lines if one.what is Turn.BEGUN}
        for token in list(coordinator._held.values()):
            if token.number not in known:
                at_s, key = self.world.now_s, str(token.key)
                self._add(TurnLine(at_s, Turn.BEGUN, who, key, 0, token.number))
        self._add(TurnLine(self.world.now_s, Turn.DIED, who))

    def _ask(
        self, coordinator: DistributedQueueCoordinator, session: Session, left: list[int]
    ) -> None:
        draw = self.draw
        while left:
            left.pop()
            clock.sleep(0.01 + draw() * self.life.seconds / self.life.requests)
            key = f"k{int(draw() * self.life.keys)}"
            self._number += 1
            request, drawn = self._number, draw()
            timeout_s = 0.0 if drawn < 0.1 else 1.0 if drawn < 0.3 else 20.0
            self.note(Turn.ASKED, key, request)
            try:
                token = coordinator.enqueue(key, timeout_s)
            except LeaderqError:
                self.note(Turn.FAILED, key, request)
            else:
                if token.outcome is EnqueueOutcome.DECLINE:
                    self.note(Turn.DECLINED, key, request)
                else:
                    self._work(token, request)
                    self.note(Turn.RELEASED, key, request, token.number)
                    if coordinator.dequeue(token):
                        self.note(Turn.STOOD, key, request, token.number)

    def _cover(self, owner: list[DistributedQueueCoordinator], key: str | bytes) -> None:
        mine = primitives.get_ident()
        held = list(owner[0]._held.values())
        for token in held:
            if token.key == key and token.owner == mine:
                self._work(token, 0)

    def _work(self, token: DistributedToken, request: int) -> None:
        draw, key = self.draw, str(token.key)
        self.note(Turn.BEGUN, key, request, token.number)
        drawn = draw()
        for _ in range(1 + int(drawn * 4)):
            self._believe(token, request)
            if draw() < 0.3:
                data = f"{key} {token.number}".encode()
                with suppress(LeaderqError):
                    token.write([Create(f"{WRITES}/w-", data, sequential=True)], timeout_s=2.0)
            clock.sleep(0.01 + (2.5 if drawn > 0.95 else 0.2) * draw())
        self._believe(token, request)

    def _believe(self, token: DistributedToken, request: int) -> None:
        if token.is_current and token.holder and token.holder.session not in self._ended:
            self.note(Turn.BELIEVED, str(token.key), request, token.number)

    def begin(self) -> Faults:
        for number in range(self.life.processes):
            left = [[1] * self.life.requests for _ in range(self.life.threads)]
            main = partial(self.process, number, left)
            self.programs.append(Program(self.cluster, f"c{number}", main))
        return Faults(self.cluster, FaultNotes(self.world, self.fault), self.life.kinds)

    def end(self) -> None:
        until_s = self.life.seconds + _CALM_S
        if not self.world.run(until_s, unless=lambda: all(one.is_done for one in self.programs)):
            busy = ", ".join(one.name for one in self.programs if not one.is_done)
            self.problems.append(f"{busy}: a request has no end, or is not covered")
        self.world.run(self.world.now_s + 2 * self.life.timeout_s)  # the sessions of the dead end

    def judged(self) -> list[str]:
        """With what lies in ZooKeeper."""
        at_s, znodes = self.world.now_s, self.cluster.znodes()
        for path in sorted(znodes):
            if path.startswith(f"{WRITES}/"):
                key, _, number = znodes[path].decode().partition(" ")
                self.lines.append(TurnLine(at_s, Turn.WRITTEN, key=key, number=int(number)))
            elif path.startswith(f"{ROOT}/"):
                self.lines.append(TurnLine(at_s, Turn.LEFT, key=path))
        self.terms = len(self.lines)
        return judge(self.lines) + super().judged()


lead = _Led.lead


# -- judges ----------------------------------------------------------------------------------------


def judge(lines: Sequence[TurnLine]) -> list[str]:
    """All that is wrong with this history."""
    left = [f"{one.key} is left, and is nobody's" for one in lines if one.what is Turn.LEFT]
    return left + one_head(lines) + never_back(lines) + covered(lines)


def one_head(lines: Sequence[TurnLine]) -> list[str]:
    """Once the head of a number has believed in it, nobody believes in a lower one, nor is told
    that a lower one stood, until it was released later.
    """
    problems: list[str] = []
    highest: dict[str, TurnLine] = {}
    overtaken: dict[int, TurnLine] = {}
    for one in lines:
        later = highest.get(one.key, one)
        if one.what is Turn.BELIEVED and one.number >= later.number:
            highest[one.key] = one
        elif one.what in (Turn.BELIEVED, Turn.RELEASED) and later.number > one.number:
            overtaken[one.number] = later
        if one.what not in (Turn.BELIEVED, Turn.STOOD):
            continue
        if (other := overtaken.get(one.number)) is not None:
            problems.append(
                f"{one.key}: {one.number} {one.what.value} to {one.who} at {one.at_s:.3f}, and"
                f" {other.who} believed {other.number} at {other.at_s:.3f}"
            )
    return problems


def never_back(lines: Sequence[TurnLine]) -> list[str]:
    """Fenced writes come in the order of their heads."""
    problems: list[str] = []
    last: dict[str, int] = {}
    for one in lines:
        if one.what is Turn.WRITTEN:
            if one.number < last.get(one.key, 0):
                problems.append(f"{one.key}: {one.number} was written after {last[one.key]}")
            last[one.key] = one.number
    return problems


def covered(lines: Sequence[TurnLine]) -> list[str]:
    """A run begins after each request that was declined, if the process of that lives on."""
    asked_s = {one.request: one.at_s for one in lines if one.what is Turn.ASKED}
    died = {one.who for one in lines if one.what is Turn.DIED}
    problems = []
    for one in lines:
        if one.what is not Turn.DECLINED or one.who in died:
            continue
        since_s = asked_s[one.request]
        if not any(
            run.what is Turn.BEGUN and run.key == one.key and run.at_s >= since_s for run in lines
        ):
            problems.append(f"{one.key}: declined at {one.at_s:.3f} to {one.who}, never covered")
    return problems
