"""Lives of a queue: producers and consumers in processes of their own, under faults drawn from the
seed, and what must not stand in their histories.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from itertools import takewhile
from typing import Any

from leaderq.base import clock
from leaderq.errors import LeaderqError
from leaderq.queues import (
    TEXT,
    DistributedDelayQueue,
    DistributedIdQueue,
    DistributedPriorityQueue,
    DistributedQueue,
    ErrorMode,
    QueueRecipe,
    Retry,
)
from leaderq.testing.nemesis.history import Kind
from leaderq.testing.simulation.faults import Faults
from leaderq.testing.simulation.primitives import SimulatedEvent
from leaderq.testing.simulation.scheduler import EPOCH_S
from leaderq.zookeeper import Session
from simulation.led import Led, Life
from simulation.programs import FaultNotes, Program

PATH, LOCKS = "/q", "/q-locks"
KINDS_OF_FAULTS = (
    Kind.KILL_WORKER,
    Kind.FREEZE_WORKER,
    Kind.BLACK_HOLE,
    Kind.BLACK_HOLE_TO_CLIENT,
    Kind.RESET,
    Kind.LOSE_CLAIM,
    Kind.END_SESSION,
    Kind.RESTART_SERVER,
)
SECOND = "~"
"""Ends the name of a value that was put behind another one in the same znode."""
_RECIPES: tuple[type[QueueRecipe[str]], ...] = (
    *(DistributedQueue, DistributedIdQueue, DistributedPriorityQueue, DistributedDelayQueue),
)
_PRIORITIES = 3
_CALM_S = 20.0
_NEWS_S = 0.1
_LOOK_S = 0.5
_BACK_OFF_S = 0.025
"""The least of a back-off: chance cuts up to half of it."""


class Step(Enum):
    """What a line of a queue's history tells."""

    PUTTING = "putting"
    PUT = "put"  # and acknowledged as stored
    BEGUN = "begun"
    DONE = "done"  # the user's code returned
    RAISED = "raised"
    ACKED = "acked"  # of an item that was taken on request
    PART_ACKED = "acked in part"  # others of its znode are to come: it may come again
    REFUSED = "refused"
    SESSION_OVER = "session over"  # on the servers; ``who`` had it
    DIED = "died"
    FAULT = "fault"
    LEFT = "left"  # in ZooKeeper at the end


_TROUBLES = Step.FAULT, Step.DIED, Step.SESSION_OVER


@dataclass(frozen=True, slots=True)
class QueueLine:
    """``who``: a process, a new one after each start. ``rank``: its priority, or due time in ms."""

    at_s: float
    step: Step
    who: str = ""
    item: str = ""
    rank: int = 0


@dataclass(frozen=True, slots=True)
class QueueLife(Life):
    """A life of a queue."""

    kinds: Sequence[Kind] = KINDS_OF_FAULTS
    consumers: int = 3
    producers: int = 2
    items: int = 20
    """Of each producer."""
    kind: type[QueueRecipe[str]] | None = None
    """Which recipe; ``None``: drawn."""
    is_locking: bool | None = None
    is_taken: bool | None = None
    """Whether items are taken on request."""
    longest_s: float = 0.4
    """How long work on an item takes at most; now and then five times as long."""


class _Led(Led[QueueLife]):
    """The producers and consumers of one life, and their recorder."""

    def __init__(self, life: QueueLife) -> None:
        super().__init__(life)
        draw = self.draw
        drawn = _RECIPES[int(draw() * len(_RECIPES))]
        is_locking, is_taken, width = draw() < 0.7, draw() < 0.3, 1 + (draw() < 0.3)
        self.recipe = life.kind or drawn
        self.is_locking = is_locking if life.is_locking is None else life.is_locking
        self.is_taken = is_taken if life.is_taken is None else life.is_taken
        self.width = width
        self.mode = ErrorMode.KEEP if draw() < 0.2 else ErrorMode.REQUEUE
        self.lines: list[QueueLine] = []
        self._holders: dict[str, list[tuple[str, int]]] = {}  # of an item: process, session
        self.parties: list[Program] = []

    def note(self, step: Step, who: str = "", item: str = "", rank: int = 0) -> None:
        task = self.world.current
        if self.world.over or (task is not None and not task.process.alive):
            return
        self.lines.append(QueueLine(self.world.now_s, step, who, item, rank))
        self.world.note(step.value, process=who or None, item=item, rank=rank)

    def add(self, name: str, main: Callable[[Session, str], object]) -> None:
        """A program whose ``main`` is given its session and the name of the process."""

        def stay(session: Session) -> None:
            process = party.process
            process.deaths.append(lambda: self.note(Step.DIED, process.name))
            main(session, process.name)
            SimulatedEvent().wait()  # what it has opened goes on

        party = Program(self.cluster, name, stay)
        self.parties.append(party)

    def queue(self, session: Session, **keywords: Any) -> QueueRecipe[str]:
        made = self.recipe(
            session,
            PATH,
            serializer=TEXT,
            lock_path=LOCKS if self.is_locking else None,
            error_mode=self.mode,
            retry=Retry(first_s=2 * _BACK_OFF_S, most_s=0.5),
            concurrency=self.width,
            **keywords,
        )
        while True:
            try:
                made.start()
            except LeaderqError:
                clock.sleep(0.2)
                continue
            return made

    # -- producers ---------------------------------------------------------------------------------

    def producer(self, party: int) -> Callable[[Session, str], object]:
        left = [f"p{party}-{number}" for number in range(self.life.items)]

        def main(session: Session, who: str) -> None:
            queue = self.queue(session)
            while left:
                items = [left.pop(0)]
                if self.draw() < 0.15 and left:
                    items.append(left.pop(0) + SECOND)
                self._put_these(queue, who, items)
                pause = self.draw()
                clock.sleep(0.01 + 0.9 * self.life.seconds / self.life.items * pause)
            self.parties[party].is_done = True

        return main

    def _put_these(self, queue: QueueRecipe[str], who: str, items: list[str]) -> None:
        rank = int(self.draw() * _PRIORITIES)
        more: dict[str, Any] = {}
        if self.recipe is DistributedDelayQueue:
            due_s = clock.calendar_s() + rank * 0.4
            rank, more = round(due_s * 1000), {"due": due_s}
        elif self.recipe is DistributedPriorityQueue:
            more = {"priority": rank}
        elif self.recipe is DistributedIdQueue:
            more = {"id": f"id{rank}"}
        for item in items:
            self.note(Step.PUTTING, who, item, rank)
        try:
            put: Any = queue
            name = put.put(items[0], **more) if len(items) == 1 else put.put_multi(items, **more)
        except LeaderqError:
            return
        if name:
            for item in items:
                self.note(Step.PUT, who, item, rank)

    # -- consumers ---------------------------------------------------------------------------------

    def consumer(self, session: Session, who: str) -> None:
        if self.is_taken:
            queue = self.queue(session)
            while True:
                try:
                    item = queue.take(1.0)
                except LeaderqError:
                    clock.sleep(0.1)
                    continue
                if item is None:
                    continue
                self._take(session, who, item)
        self.queue(session, consumer=lambda value: self._work(session, who, value))

    def _take(self, session: Session, who: str, item: Any) -> None:
        try:
            self._work(session, who, item.value)
        except RuntimeError as exc:
            with suppress(LeaderqError):
                item.fail(exc)
            return
        try:
            item.ack()
        except LeaderqError:
            self.note(Step.REFUSED, who, item.value)
        else:
            taken = item._taken
            is_last = not taken.open and not taken.left
            self.note(Step.ACKED if is_last else Step.PART_ACKED, who, item.value)

    def _work(self, session: Session, who: str, item: str) -> None:
        holders = self._holders.setdefault(item, [])
        for holder in list(holders):
            if holder[1] and holder[1] not in self.cluster.standing_sessions():
                self.note(Step.SESSION_OVER, holder[0], item)
                holders.remove(holder)
        self.note(Step.BEGUN, who, item)
        holders.append((who, session.id or 0))
        drawn = self.draw()
        clock.sleep(0.002 + self.life.longest_s * drawn**4 * (5 if drawn > 0.98 else 1))
        if drawn < 0.05:
            self.note(Step.RAISED, who, item)
            raise RuntimeError("drawn")
        self.note(Step.DONE, who, item)

    def is_drained(self) -> bool:
        """Whether all that was put is done: nothing lies there, and nobody has begun or ended
        anything for a while. Without a lock path what is worked on lies nowhere.
        """
        is_quiet = not self.lines or self.lines[-1].at_s < self.world.now_s - 6 * _LOOK_S
        is_put = all(one.is_done for one in self.parties[: self.life.producers])
        return is_put and is_quiet and not self.left()

    def left(self) -> list[str]:
        """The items and locks that lie in ZooKeeper."""
        tree = self.cluster.tree
        return [
            name
            for path in (PATH, LOCKS)
            if path in tree.nodes
            for name in sorted(tree.names_below(path))
        ]

    # -- the life ----------------------------------------------------------------------------------

    def begin(self) -> Faults:
        for number in range(self.life.producers):
            self.add(f"p{number}", self.producer(number))
        for number in range(self.life.consumers):
            self.add(f"c{number}", self.consumer)
        notes = FaultNotes(self.world, lambda *_: self.note(Step.FAULT))
        return Faults(self.cluster, notes, self.life.kinds)

    def end(self) -> None:
        world, life = self.world, self.life
        until_s = world.now_s + 3 * life.timeout_s + _CALM_S + 10 * life.longest_s
        while world.now_s < until_s and not self.is_drained():
            world.run(world.now_s + _LOOK_S)

    def judged(self) -> list[str]:
        for name in self.left():
            self.note(Step.LEFT, item=name)
        is_ordered = self.life.consumers * self.width == 1
        rules = Rules(self.is_locking, is_ordered, self.recipe)
        return judge(self.lines, rules) + super().judged()


lead = _Led.lead


# -- judges ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rules:
    """What is promised to this queue. ``is_ordered``: one consumer takes one item at a time."""

    is_locking: bool = True
    is_ordered: bool = False
    recipe: type[QueueRecipe[str]] = DistributedQueue


def judge(lines: Sequence[QueueLine], rules: Rules) -> list[str]:
    """All that is wrong with this history."""
    problems = nothing_lost(lines, rules) + held_by_one(lines, rules) + backed_off(lines)
    if rules.recipe is DistributedDelayQueue:
        problems += never_before_its_time(lines)
    if rules.is_ordered:
        problems += in_order(lines, rules)
    return problems


def nothing_lost(lines: Sequence[QueueLine], rules: Rules) -> list[str]:
    """What was put and acknowledged is done in the end, and nothing is left in ZooKeeper.

    Without a lock path a consumer that dies may take with it what it had claimed.
    """
    problems = [f"{one.item} is left in ZooKeeper" for one in lines if one.step is Step.LEFT]
    if not rules.is_locking and any(
        one.step is Step.DIED and one.who.startswith("c") for one in lines
    ):
        return problems
    done = {one.item for one in lines if one.step is Step.DONE}
    return problems + [
        f"{one.item} was put at {one.at_s:.3f}, and never done"
        for one in lines
        if one.step is Step.PUT and one.item not in done
    ]


def held_by_one(lines: Sequence[QueueLine], rules: Rules) -> list[str]:
    """Nobody begins what another one works on, or has done; and nobody acknowledges what is not
    his.

    Allowed with a lock path: that one has died, or its session was over before. Without one:
    never, but for what has failed. After an acknowledgement: never, unless other values of its
    znode were still open.
    """
    problems: list[str] = []
    holders: dict[str, dict[str, str]] = {}
    acked: set[str] = set()
    for one in lines:
        held = holders.setdefault(one.item, {})
        if one.step is Step.BEGUN:
            what = f"{one.item} begun by {one.who} at {one.at_s:.3f}"
            if one.item in acked:
                problems.append(f"{what} after its acknowledgement")
            problems += [f"{what}: {who} has {state} it" for who, state in held.items()]
            held[one.who] = "begun"
        elif one.step is Step.DONE and one.who in held:
            held[one.who] = "done"
        elif one.step in (Step.ACKED, Step.PART_ACKED):
            if one.who not in held or one.item in acked:
                problems.append(f"{one.item} acknowledged by {one.who}, who has it no more")
            if one.step is Step.ACKED:
                acked.add(one.item)
        else:
            _let_go(one, holders, rules)
    return problems


def _let_go(one: QueueLine, holders: dict[str, dict[str, str]], rules: Rules) -> None:
    is_over = one.step is Step.SESSION_OVER and rules.is_locking
    if is_over or one.step is Step.RAISED:
        holders[one.item].pop(one.who, None)
    elif one.step is Step.DIED and rules.is_locking:
        for held in holders.values():
            held.pop(one.who, None)


def never_before_its_time(lines: Sequence[QueueLine]) -> list[str]:
    """No item of a delay queue begins before it is due."""
    due_ms = {one.item: one.rank for one in lines if one.step is Step.PUTTING}
    return [
        f"{one.item} begun {early_s:.3f} s before it was due"
        for one in lines
        if one.step is Step.BEGUN
        and (early_s := due_ms.get(one.item, 0) / 1000 - EPOCH_S - one.at_s) > 0.001
    ]


def backed_off(lines: Sequence[QueueLine]) -> list[str]:
    """Before the first fault, nobody begins again what has failed before its back-off is over."""
    problems = []
    failed_s: dict[str, float] = {}
    for one in takewhile(lambda line: line.step not in _TROUBLES, lines):
        if one.step is Step.RAISED:
            failed_s[one.item] = one.at_s
        elif one.step is Step.BEGUN:
            rested_s = one.at_s - failed_s.pop(one.item, -1.0)
            if rested_s < _BACK_OFF_S - 0.002:
                problems.append(f"{one.item} begun by {one.who} {rested_s:.3f} s after it failed")
    return problems


def in_order(lines: Sequence[QueueLine], rules: Rules) -> list[str]:
    """Before the first fault, one consumer begins the first of those that wait: by priority or due
    time, then as they were stored. It may be _NEWS_S late to learn of one.
    """
    problems: list[str] = []
    is_ranked = rules.recipe in (DistributedPriorityQueue, DistributedDelayQueue)
    asked: dict[str, QueueLine] = {}
    waiting: dict[str, QueueLine] = {}
    begun: set[str] = set()

    def place(line: QueueLine) -> tuple[int, float]:
        return line.rank if is_ranked else 0, line.at_s

    def since_s(line: QueueLine) -> float:
        is_delayed = rules.recipe is DistributedDelayQueue
        return max(line.at_s, line.rank / 1000 - EPOCH_S if is_delayed else 0.0)

    for one in takewhile(lambda line: line.step not in _TROUBLES, lines):
        if one.item.endswith(SECOND) or one.item in begun:
            continue
        if one.step is Step.PUTTING:
            asked[one.item] = one
        elif one.step is Step.PUT:
            waiting[one.item] = one
        elif one.step is Step.BEGUN:
            begun.add(one.item)
            waiting.pop(one.item, None)
            problems += [
                f"{one.item} begun at {one.at_s:.3f} before {other.item}"
                for other in waiting.values()
                if since_s(other) < one.at_s - _NEWS_S and place(other) < place(asked[one.item])
            ]
    return problems
