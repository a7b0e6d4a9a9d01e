"""Lives of an election: candidates with a rude career, under faults drawn from the seed.

The history is written in the words of the nemesis, and judged by the judges of the nemesis: what
must not be in a history of real processes must not be in a simulated one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from leaderq import clock
from leaderq.career import LeaderCareer
from leaderq.errors import LeaderqError
from leaderq.term import Term
from leaderq.testing.nemesis.checkers import (
    Bounds,
    led_again,
    nothing_after_its_term,
    register_never_falls_back,
)
from leaderq.testing.nemesis.history import Kind, Line, What
from leaderq.testing.simulation.cluster import Cluster, SimulatedWorker
from leaderq.testing.simulation.installing import installed
from leaderq.testing.simulation.scheduler import LifeHangs, World
from leaderq.zookeeper import Create

REGISTER = "/register"
_CALM_S = 1.0
"""How long a life is left in peace at its end, beyond the time in which somebody must lead."""


@dataclass(frozen=True, slots=True)
class ElectionLife:
    """What a life of an election is made of; all else is drawn from ``seed``.

    ``seconds``: how long faults come; then all is healed, and somebody must lead. ``timeout_s`` is
    T. ``polite``: the career asks its term, and returns soon; otherwise it never looks.
    """

    seed: int | str
    candidates: int = 3
    seconds: float = 30.0
    faults: int = 5
    timeout_s: float = 4.0
    servers: int = 1
    ticks: int = 5
    """How many ticks of the servers T has."""
    polite: bool = False
    has_guardian: bool = True
    kinds: Sequence[Kind] = ()
    """The faults to draw from; by default all that a simulation knows."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of a life: ``problems`` are sentences, and there must be none."""

    life: Any
    problems: list[str]
    history: list[str] = field(repr=False)
    terms: int = 0
    steps: int = 0

    @property
    def seed(self) -> int | str:
        seed: int | str = self.life.seed
        return seed


class Chronicle:
    """The lines of one life, for the judges and for the history."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lines: list[Line] = []

    def note(self, what: What, *, who: str = "", **values: Any) -> None:
        task = self._world.current
        if self._world.over or (task is not None and not task.process.alive):
            return
        self.lines.append(Line(self._world.now_s, what, who, **values))
        told = {name: getattr(value, "value", value) for name, value in values.items()}
        self._world.note(what.value, process=who or None, **told)


class RudeCareer(LeaderCareer):
    """Acts without looking at its term, for as long as it likes; and writes what it does."""

    def __init__(self, chronicle: Chronicle, world: World, *, polite: bool) -> None:
        self._chronicle = chronicle
        self._world = world
        self._polite = polite
        self.atomic = polite

    def _note(self, what: What, term: Term, **values: Any) -> None:
        task = self._world.current
        pid = 0 if task is None else task.process.pid
        self._chronicle.note(what, who=term.candidate, pid=pid, term=term.number, **values)

    def inaugurate(self, term: Term) -> None:
        self._note(What.INAUGURATED, term)

    def execute(self, term: Term) -> None:
        self._note(What.UNIT, term)
        drawn = self._world.faults()
        for _ in range(1 + int(drawn * 3)):
            self._act(term)
            length_s = 0.02 + 1.5 * drawn * drawn
            if self._polite:
                if not term.wait(length_s):
                    return
            else:
                clock.sleep(length_s * (8 if drawn > 0.97 else 1))
        if drawn < 0.4:
            self._write(term)

    def _act(self, term: Term) -> None:
        if not self._polite:
            self._note(What.EFFECT, term)
            return
        with suppress(LeaderqError):
            term.check()
            self._note(What.BELIEVED, term)

    def _write(self, term: Term) -> None:
        with suppress(LeaderqError):
            # around the look at the clock that term.write takes: ZooKeeper itself must refuse
            write = Create(f"{REGISTER}/w-", b"%d" % term.number, sequential=True)
            term._fenced_write(term, [write])

    def handOver(self, term: Term) -> None:  # noqa: N802  (the user's name)
        reason = term.reason
        self._note(What.HANDED_OVER, term, why=reason.value if reason else "")


class _Nemesis:
    """Draws faults and heals them."""

    def __init__(self, cluster: Cluster, chronicle: Chronicle, life: ElectionLife) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._chronicle = chronicle
        self._life = life
        self._number = 0
        self._healing: list[Callable[[], None]] = []
        self._kinds = list(life.kinds or _ACTIONS)

    def plan(self) -> None:
        """Put all faults of the life where they are due."""
        for _ in range(self._life.faults):
            at_s = 1.0 + self._world.faults() * (self._life.seconds - 2.0)
            self._world.at(at_s, self._strike)

    def _strike(self) -> None:
        kind = self._kinds[int(self._world.faults() * len(self._kinds))]
        workers = [one for one in self._cluster.workers if not one.is_gone and one.process.alive]
        if not workers:
            return
        # leaders are struck more often: there is more to see
        leading = [one for one in workers if one.runner is not None and one.runner._term is not None]
        among = leading if leading and self._world.faults() < 0.7 else workers
        worker = among[int(self._world.faults() * len(among))]
        self._number += 1
        number, pid = self._number, worker.process.pid
        self._chronicle.note(What.FAULT, who=worker.name, pid=pid, number=number, kind=kind)
        heal = _ACTIONS[kind](self._cluster, worker)
        lasts_s = self._life.timeout_s * (0.05 + 1.6 * self._world.faults())

        def over() -> None:
            if over in self._healing:
                self._healing.remove(over)
                heal()
                self._chronicle.note(What.OVER, who=worker.name, pid=pid, number=number, kind=kind)

        self._healing.append(over)
        self._world.at(lasts_s if kind.lasts else 0.0, over)

    def heal_all(self) -> None:
        for over in list(self._healing):
            over()


def _nothing() -> None:
    return None


def _kill_worker(cluster: Cluster, worker: SimulatedWorker) -> Callable[[], None]:
    worker.process.kill()
    return _nothing


def _kill_guardian(cluster: Cluster, worker: SimulatedWorker) -> Callable[[], None]:
    if worker.guardian is not None:
        worker.guardian.process.kill()
    return _nothing


def _kill_both(cluster: Cluster, worker: SimulatedWorker) -> Callable[[], None]:
    cluster.network.lose_host(worker.process.host)
    return _nothing


def _freeze_worker(cluster: Cluster, worker: SimulatedWorker) -> Callable[[], None]:
    process = worker.process
    process.freeze()
    return process.thaw


def _freeze_both(cluster: Cluster, worker: SimulatedWorker) -> Callable[[], None]:
    both = [worker.process, *([worker.guardian.process] if worker.guardian is not None else [])]
    for one in both:
        one.freeze()

    def thaw() -> None:
        for one in reversed(both):
            one.thaw()

    return thaw


def _freeze_guardian(cluster: Cluster, worker: SimulatedWorker) -> Callable[[], None]:
    if worker.guardian is None:
        return _nothing
    worker.guardian.process.freeze()
    return worker.guardian.process.thaw


def _cut(there: bool, back: bool) -> Callable[[Cluster, SimulatedWorker], Callable[[], None]]:
    def cut(cluster: Cluster, worker: SimulatedWorker) -> Callable[[], None]:
        host = worker.process.host
        cluster.network.cut(host, there=there, back=back)
        return lambda: cluster.network.heal(host)

    return cut


def _reset(cluster: Cluster, worker: SimulatedWorker) -> Callable[[], None]:
    cluster.network.reset(worker.process)
    return _nothing


def _end_session(cluster: Cluster, worker: SimulatedWorker) -> Callable[[], None]:
    session = None if worker.runner is None else worker.runner._session
    if session is not None and session.id is not None:
        cluster.ensemble.expire(session.id)
    return _nothing


def _a_server(cluster: Cluster) -> int:
    return int(cluster.world.faults() * len(cluster.ensemble.names))


def _kill_server(cluster: Cluster, worker: SimulatedWorker) -> Callable[[], None]:
    server = _a_server(cluster)
    cluster.ensemble.stop(server)
    return lambda: cluster.ensemble.start(server)


def _freeze_server(cluster: Cluster, worker: SimulatedWorker) -> Callable[[], None]:
    server = _a_server(cluster)
    cluster.ensemble.freeze(server)
    return lambda: cluster.ensemble.thaw(server)


def _restart_server(cluster: Cluster, worker: SimulatedWorker) -> Callable[[], None]:
    server = _a_server(cluster)
    cluster.ensemble.stop(server)
    cluster.world.at(0.3, lambda: cluster.ensemble.start(server))
    return _nothing


def _step_down(cluster: Cluster, worker: SimulatedWorker) -> Callable[[], None]:
    cluster.terminate(worker.process)
    return _nothing


_ACTIONS: dict[Kind, Callable[[Cluster, SimulatedWorker], Callable[[], None]]] = {
    Kind.KILL_WORKER: _kill_worker,
    Kind.KILL_GUARDIAN: _kill_guardian,
    Kind.KILL_BOTH: _kill_both,
    Kind.FREEZE_WORKER: _freeze_worker,
    Kind.FREEZE_BOTH: _freeze_both,
    Kind.FREEZE_GUARDIAN: _freeze_guardian,
    Kind.BLACK_HOLE: _cut(True, True),
    Kind.BLACK_HOLE_TO_SERVER: _cut(True, False),
    Kind.BLACK_HOLE_TO_CLIENT: _cut(False, True),
    Kind.RESET: _reset,
    Kind.END_SESSION: _end_session,
    Kind.KILL_SERVER: _kill_server,
    Kind.FREEZE_SERVER: _freeze_server,
    Kind.RESTART_SERVER: _restart_server,
    Kind.STEP_DOWN: _step_down,
}


def lead(life: ElectionLife) -> Verdict:
    """Lead one life and judge it."""
    world = World(life.seed)
    cluster = Cluster(
        world,
        timeout_s=life.timeout_s,
        servers=life.servers,
        tick_s=life.timeout_s / life.ticks,
    )
    chronicle = Chronicle(world)
    problems: list[str] = []
    with installed(world, cluster.network):
        cluster.ensemble.create(REGISTER)
        for number in range(life.candidates):
            cluster.worker(
                f"c{number}",
                lambda: RudeCareer(chronicle, world, polite=life.polite),
                has_guardian=life.has_guardian,
                career="life",
                handover_budget_s=2.0,
            )
        nemesis = _Nemesis(cluster, chronicle, life)
        try:
            _begin(world, cluster)
            nemesis.plan()
            world.run(life.seconds)
            nemesis.heal_all()
            chronicle.note(What.HEALED)
            world.run(life.seconds + Bounds(life.timeout_s).leader_s + _CALM_S)
        except LifeHangs as error:
            problems.append(str(error))
        chronicle.lines.extend(_accepted(cluster, world.now_s))
        problems += judge(chronicle.lines, Bounds(life.timeout_s))
        problems += [
            f"{process}: {what} {facts}"
            for _, process, what, facts in world.history
            if what in ("task failed", "callback failed", "career failed")
        ]
        history = list(world.lines())
    terms = sum(1 for line in chronicle.lines if line.what is What.INAUGURATED)
    return Verdict(life, problems, history, terms, world.steps)


def _begin(world: World, cluster: Cluster) -> None:
    def keep_running() -> None:
        for worker in cluster.workers:
            worker.start()
        world.at(0.5, keep_running)

    keep_running()


def _accepted(cluster: Cluster, now_s: float) -> Iterable[Line]:
    """The fenced writes that ZooKeeper has accepted, in its order."""
    names = sorted(cluster.ensemble.children(REGISTER))
    for number, name in enumerate(names):
        term = int(cluster.ensemble.data(f"{REGISTER}/{name}"))
        yield Line(now_s, What.ACCEPTED, number=number, term=term)


def judge(lines: Sequence[Line], bounds: Bounds) -> list[str]:
    """All that is wrong with this history."""
    judges = (register_never_falls_back, nothing_after_its_term, led_again)
    return [problem for one in judges for problem in one(lines, bounds)]
