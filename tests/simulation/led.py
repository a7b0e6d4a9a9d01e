"""What all kinds of lives have in common: a world with servers, and faults drawn from the seed,
until all is healed and the life comes to its end; then it is judged.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic, TypeVar

from leaderq.testing.nemesis.checkers import Bounds
from leaderq.testing.nemesis.history import Kind, What
from leaderq.testing.simulation.chronicle import Chronicle, LifeVerdict, failures, judge
from leaderq.testing.simulation.cluster import SimulatedCluster
from leaderq.testing.simulation.faults import Faults
from leaderq.testing.simulation.installing import installed
from leaderq.testing.simulation.scheduler import LifeHangs, World


@dataclass(frozen=True, slots=True)
class Life:
    """What a life is made of; all else is drawn from ``seed``.

    ``seconds``: how long faults come. ``timeout_s`` is T. ``kinds``: the faults to draw from; by
    default all that a simulation knows.
    """

    seed: int | str
    _: KW_ONLY
    seconds: float = 12.0
    faults: int = 4
    timeout_s: float = 4.0
    servers: int = 1
    kinds: Sequence[Kind] = ()


L = TypeVar("L", bound=Life)


class Led(Generic[L]):
    """One life. A kind says how it begins and how it ends, and what is wrong with it."""

    def __init__(self, life: L, *, seed: str = "", tick_s: float | None = None) -> None:
        self.life, self.world = life, World(seed or life.seed)
        self.cluster = SimulatedCluster(
            self.world, timeout_s=life.timeout_s, servers=life.servers, tick_s=tick_s
        )
        self.faults_s, self.draw = life.seconds, self.world.faults
        self.problems: list[str] = []
        self.terms = 0
        """How many there were, or other things that show that it was not an idle life."""
        self.opened = ExitStack()

    @classmethod
    def lead(cls, life: L) -> LifeVerdict:
        """Lead one life and judge it."""
        led = cls(life)
        world, problems = led.world, led.problems
        with led.opened as opened:
            opened.enter_context(installed(world, led.cluster.network))
            faults = led.begin()
            try:
                led.keep_running()
                faults.plan(life.faults, led.faults_s)
                led.plan()
                world.run(led.faults_s)
                faults.heal_all()
                led.end()
            except LifeHangs as error:
                problems.append(str(error))
            problems += led.judged()
        return LifeVerdict(life, problems, world, led.terms)

    def begin(self) -> Any:
        """Make all who take part; gives the faults to suffer."""
        raise NotImplementedError

    def keep_running(self) -> None:
        self.cluster.keep_running()

    def plan(self) -> None:
        """Let more come, beside the faults."""

    def end(self) -> None:
        """All is healed: let it come to its end."""

    def judged(self) -> list[str]:
        """All that is wrong."""
        return failures(self.world)


@dataclass(frozen=True, slots=True)
class CandidateLife(Life):
    """``seconds``: how long it is. Before its end all is healed, and somebody must lead in time."""

    seconds: float = 30.0
    faults: int = 5
    candidates: int = 3
    has_guardian: bool = True


C = TypeVar("C", bound=CandidateLife)


class LedCandidates(Led[C]):
    """``calm_s``: how long it is left in peace, beyond the time in which somebody must lead."""

    def __init__(self, life: C, calm_s: float, **servers: Any) -> None:
        super().__init__(life, **servers)
        self.chronicle = Chronicle(self.world)
        self.faults_s -= Bounds(life.timeout_s + self.cluster.tick_s).leader_s
        self.faults_s -= calm_s

    def candidates(self, make: Callable[[], Any], handover_budget_s: float) -> Faults:
        settings: Any = {"career": "life", "handover_budget_s": handover_budget_s}
        for number in range(self.life.candidates):
            guarded = {"has_guardian": self.life.has_guardian}
            self.cluster.worker(f"c{number}", make, **guarded, **settings)
        return Faults(self.cluster, self.chronicle, self.life.kinds)

    def end(self) -> None:
        self.chronicle.note(What.HEALED)
        self.world.run(self.life.seconds)

    def elected(self, fenced_only: bool) -> list[str]:
        """What is wrong with the election."""
        times = self.life.timeout_s, self.cluster.tick_s
        judged = judge(self.chronicle.lines, *times, fenced_only=fenced_only)
        return judged + super().judged()
