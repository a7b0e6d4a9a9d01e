"""Lives of a queue of messages: what was pushed is acknowledged once, whoever dies.

What is promised: a message that was pushed is delivered until it is acknowledged; an
acknowledgement that succeeded is the only one; no message is delivered to another consumer while
its lease and its session stand.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from leaderq import clock
from leaderq.dyno import Delivery, DynoQueue, Message
from leaderq.errors import LeaderqError
from leaderq.testing.simulation.chronicle import Chronicle, LifeVerdict, failures
from leaderq.testing.simulation.cluster import SimulatedCluster
from leaderq.testing.simulation.faults import Faults
from leaderq.testing.simulation.installing import installed
from leaderq.testing.simulation.scheduler import LifeHangs, World
from leaderq.zookeeper import Session
from simulation.programs import FAULTS, Program, keep_running

ROOT = "/jobs"


@dataclass(frozen=True, slots=True)
class MessageLife:
    """What a life of messages is made of; all else is drawn from ``seed``."""

    seed: int | str
    consumers: int = 2
    producers: int = 2
    messages: int = 12
    """How many each producer pushes."""
    shards: int = 2
    seconds: float = 10.0
    faults: int = 3
    timeout_s: float = 4.0
    lease_s: float = 5.0
    servers: int = 1


class Step(NamedTuple):
    """One thing that happened to a message. ``what``: pushed, doubted, delivered, settling,
    acknowledged, refused or unknown. ``beside``: of a delivery, the process whose lease and session
    still stand.
    """

    at_s: float
    what: str
    id: str
    process: str
    beside: str = ""


class _Log:
    """What the programs of a life did, in order; what a dead one does is not written down."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self.lines: list[Step] = []
        self._held: dict[str, tuple[str, int, float]] = {}
        self._sessions: dict[str, int] = {}

    def note(self, what: str, id: str, *, session: int | None = None, until_s: float = 0.0) -> None:
        task = self._world.current
        if self._world.over or task is None or not task.process.alive:
            return
        beside = ""
        if what == "delivered":
            holder, owner, ends_s = self._held.get(id, ("", 0, 0.0))
            standing = self._cluster.standing_sessions()
            stands = ends_s > self._world.now_s and {owner, session} <= standing
            # What was claimed in a former session may be handed out late; settling it fails. Issue
            # 31 mends that: finding 1 of the review of queues.
            first = self._sessions.setdefault(task.process.name, session or 0)
            beside = holder if stands and session == first else ""
            self._held[id] = (task.process.name, session or 0, until_s)
        elif what in ("acknowledged", "refused"):
            self._held.pop(id, None)
        self.lines.append(Step(self._world.now_s, what, id, task.process.name, beside))
        self._world.note(what, id=id)


def lead(life: MessageLife) -> LifeVerdict:
    """Lead one life and judge it."""
    world = World(life.seed)
    cluster = SimulatedCluster(world, timeout_s=life.timeout_s, servers=life.servers)
    log, problems = _Log(cluster), list[str]()
    with installed(world, cluster.network):
        for number in range(life.consumers):
            Program(cluster, f"consumer{number}", lambda session: _consume(life, log, session))
        for number in range(life.producers):
            Program(
                cluster,
                f"producer{number}",
                lambda session, number=number: _push(life, log, session, number),
            )
        faults = Faults(cluster, Chronicle(world), FAULTS)
        try:
            keep_running(cluster)
            faults.plan(life.faults, life.seconds)
            world.run(life.seconds)
            faults.heal_all()
            producers = [one for one in cluster.workers if one.name.startswith("producer")]
            world.run(
                life.seconds + 90.0,
                unless=lambda: all(one.is_done for one in producers) and not undone(log.lines),
            )
        except LifeHangs as error:
            problems.append(str(error))
        problems += judge(log.lines) + failures(world)
        history = list(world.lines())
    return LifeVerdict(life, problems, history, len(log.lines), world.steps)


def _names(life: MessageLife) -> list[str]:
    return [str(number) for number in range(life.shards)]


def _consume(life: MessageLife, log: _Log, session: Session) -> None:
    draw = log._world.faults
    with DynoQueue(session, ROOT, shards=_names(life), lease_s=life.lease_s) as queue:
        while True:
            try:
                deliveries = queue.pop(1 + int(draw() * 3), timeout_s=1.0)
            except LeaderqError:
                clock.sleep(0.2)
                continue
            for one in deliveries:
                left_s = one.until_ms / 1000 - clock.calendar_s()
                ends_s = log._world.now_s + left_s
                log.note("delivered", one.id, session=session.id, until_s=ends_s)
            for one in deliveries:
                drawn = draw()
                clock.sleep(0.005 + (3.0 if drawn > 0.96 else 0.1) * drawn)
                _settle(log, one, drawn)


def _settle(log: _Log, one: Delivery, drawn: float) -> None:
    log.note("settling", one.id)
    try:
        if drawn < 0.08:
            one.nack(delay_s=0.2)
            log.note("refused", one.id)
            return
        one.ack()
    except LeaderqError as error:
        is_refused = type(error).__name__ == "StaleLease"
        log.note("refused" if is_refused else "unknown", one.id)
    else:
        log.note("acknowledged", one.id)


def _push(life: MessageLife, log: _Log, session: Session, number: int) -> None:
    draw = log._world.faults
    with DynoQueue(session, ROOT, shards=_names(life)) as queue:
        began = len([one for one in log.lines if one.process.startswith(f"producer{number}.")])
        for count in range(began, life.messages):
            id = f"m{number}-{count}"
            with suppress(LeaderqError):
                delay_s = 1.0 if draw() < 0.2 else 0.0
                queue.push([Message(id, b"work", timeout_s=delay_s, priority=int(draw() * 3))])
                log.note("pushed", id)
                clock.sleep(0.2 * draw() * draw())
                continue
            log.note("doubted", id)


def undone(lines: Sequence[Step]) -> list[str]:
    """The messages that were pushed and neither acknowledged nor perhaps so: a process that died
    while it settled one may have been heard.
    """
    last = {(one.process, one.id): one.what for one in lines}
    done = {id for (_, id), what in last.items() if what == "settling"}
    done |= {one.id for one in lines if one.what in ("acknowledged", "unknown")}
    return [one.id for one in lines if one.what == "pushed" and one.id not in done]


def judge(lines: Sequence[Step]) -> list[str]:
    """All that is wrong with what happened."""
    problems = [f"{id} was pushed, and nobody has acknowledged it" for id in undone(lines)]
    acknowledged: set[str] = set()
    for one in lines:
        if one.beside:
            problems.append(f"{one.id} was delivered to {one.process}, and {one.beside} held it")
        if one.what == "acknowledged":
            if one.id in acknowledged:
                problems.append(f"{one.id} was acknowledged twice, now by {one.process}")
            acknowledged.add(one.id)
        elif one.what == "delivered" and one.id in acknowledged:
            problems.append(f"{one.id} was delivered to {one.process} after it was acknowledged")
    return problems
