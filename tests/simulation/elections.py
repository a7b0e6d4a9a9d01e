"""Lives of an election: candidates with a rude career, under faults drawn from the seed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from leaderq.base import clock
from leaderq.career import LeaderCareer
from leaderq.errors import LeaderqError
from leaderq.term import Term
from leaderq.testing.nemesis.checkers import Bounds
from leaderq.testing.nemesis.history import Kind, Line, What
from leaderq.testing.simulation.chronicle import Chronicle, LifeVerdict, failures, judge
from leaderq.testing.simulation.cluster import SimulatedCluster
from leaderq.testing.simulation.faults import Faults
from leaderq.testing.simulation.installing import installed
from leaderq.testing.simulation.scheduler import LifeHangs, World
from leaderq.zookeeper import Create
from simulation.async_elections import AsyncRudeCareer
from simulation.programs import note_of

REGISTER = "/register"
_CALM_S = 1.0
"""How long a life is left in peace at its end, beyond the time in which somebody must lead."""


@dataclass(frozen=True, slots=True)
class ElectionLife:
    """What a life of an election is made of; all else is drawn from ``seed``.

    ``seconds``: how long it is. Before its end all is healed, and somebody must lead in time.
    ``timeout_s`` is T. ``polite``: the career asks its term, and returns soon; otherwise it never
    looks.
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
    busy: bool = False
    """The career acts twenty times a second, for seconds, and so at every moment."""
    has_guardian: bool = True
    fenced_only: bool = False
    """Judge fenced writes only: all that is promised of a career that looks at nothing, and that no
    guardian watches over."""
    in_coroutines: bool = False
    """The career is one of coroutines, and rude in the ways in which these can be."""
    kinds: Sequence[Kind] = ()
    """The faults to draw from; by default all that a simulation knows."""


class RudeCareer(LeaderCareer):
    """Acts without looking at its term, for as long as it likes; and writes what it does."""

    def __init__(self, chronicle: Chronicle, world: World, life: ElectionLife) -> None:
        self._chronicle = chronicle
        self._world = world
        self._polite, self._busy = life.polite, life.busy
        self.atomic = life.polite

    def inaugurate(self, term: Term) -> None:
        note_of(self._chronicle, What.INAUGURATED, term)
        with suppress(LeaderqError):
            self.session.ensure_path(REGISTER)

    def execute(self, term: Term) -> None:
        note_of(self._chronicle, What.UNIT, term)
        drawn = self._world.faults()
        for _ in range(1 + int(drawn * (100 if self._busy else 3))):
            self._act(term)
            length_s = 0.05 if self._busy else 0.02 + 1.5 * drawn * drawn
            if self._polite:
                if not term.wait(length_s):
                    return
            else:
                clock.sleep(length_s * (2 if drawn > 0.97 else 1))
        if drawn < 0.4:
            self._write(term)

    def _act(self, term: Term) -> None:
        if not self._polite:
            note_of(self._chronicle, What.EFFECT, term)
            return
        with suppress(LeaderqError):
            term.check()
            note_of(self._chronicle, What.BELIEVED, term)

    def _write(self, term: Term) -> None:
        with suppress(LeaderqError):
            # around the look at the clock that term.write takes: ZooKeeper itself must refuse
            write = Create(f"{REGISTER}/w-", b"%d" % term.number, sequential=True)
            term._fenced_write(term, [write])

    def handOver(self, term: Term) -> None:  # noqa: N802  (the user's name)
        why = term.reason.value if term.reason else ""
        note_of(self._chronicle, What.HANDED_OVER, term, why=why)


def lead(life: ElectionLife) -> LifeVerdict:
    """Lead one life and judge it."""
    world = World(life.seed)
    cluster = SimulatedCluster(
        world, timeout_s=life.timeout_s, servers=life.servers, tick_s=life.timeout_s / life.ticks
    )
    chronicle = Chronicle(world)
    problems: list[str] = []
    with installed(world, cluster.network):
        make = partial(
            AsyncRudeCareer if life.in_coroutines else RudeCareer, chronicle, world, life
        )
        for number in range(life.candidates):
            watched = {"has_guardian": life.has_guardian}
            cluster.worker(f"c{number}", make, career="life", handover_budget_s=2.0, **watched)
        faults = Faults(cluster, chronicle, life.kinds)
        try:
            cluster.keep_running()
            healed_s = life.seconds - Bounds(life.timeout_s + cluster.tick_s).leader_s - _CALM_S
            faults.plan(life.faults, healed_s)
            world.run(healed_s)
            faults.heal_all()
            chronicle.note(What.HEALED)
            world.run(life.seconds)
        except LifeHangs as error:
            problems.append(str(error))
        chronicle.lines.extend(_accepted(cluster, world.now_s))
        problems += judge(
            chronicle.lines, life.timeout_s, cluster.tick_s, fenced_only=life.fenced_only
        )
        problems += failures(world)
    terms = [line.what for line in chronicle.lines].count(What.INAUGURATED)
    return LifeVerdict(life, problems, world, terms)


def _accepted(cluster: SimulatedCluster, now_s: float) -> Iterable[Line]:
    """The fenced writes that ZooKeeper has accepted, in its order."""
    written = {
        path: data for path, data in cluster.znodes().items() if path.startswith(f"{REGISTER}/")
    }
    for number, path in enumerate(sorted(written)):
        yield Line(now_s, What.ACCEPTED, number=number, term=int(written[path]))
