"""Lives of an election: candidates with a rude career, under faults drawn from the seed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from leaderq.base import clock
from leaderq.career import LeaderCareer
from leaderq.errors import LeaderqError
from leaderq.term import Term
from leaderq.testing.nemesis.history import Line, What
from leaderq.testing.simulation.chronicle import Chronicle
from leaderq.testing.simulation.faults import Faults
from leaderq.testing.simulation.scheduler import World
from leaderq.zookeeper import Create
from simulation.async_elections import AsyncRudeCareer
from simulation.led import CandidateLife, LedCandidates
from simulation.programs import note_of

REGISTER = "/register"


@dataclass(frozen=True, slots=True)
class ElectionLife(CandidateLife):
    """A life of an election. ``polite``: the career asks its term, and returns soon; otherwise it
    never looks.
    """

    ticks: int = 5
    """How many ticks of the servers T has."""
    polite: bool = False
    busy: bool = False
    """The career acts twenty times a second, for seconds, and so at every moment."""
    fenced_only: bool = False
    """Judge fenced writes only: all that is promised of a career that looks at nothing, and that no
    guardian watches over."""
    in_coroutines: bool = False
    """The career is one of coroutines, and rude in the ways in which these can be."""


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


class _Led(LedCandidates[ElectionLife]):
    def __init__(self, life: ElectionLife) -> None:
        super().__init__(life, 1.0, tick_s=life.timeout_s / life.ticks)

    def begin(self) -> Faults:
        kind = AsyncRudeCareer if self.life.in_coroutines else RudeCareer
        return self.candidates(partial(kind, self.chronicle, self.world, self.life), 2.0)

    def judged(self) -> list[str]:
        """Of the fenced writes, those that ZooKeeper has accepted, in its order."""
        znodes = self.cluster.znodes()
        written = sorted(path for path in znodes if path.startswith(f"{REGISTER}/"))
        self.chronicle.lines.extend(
            Line(self.world.now_s, What.ACCEPTED, number=number, term=int(znodes[path]))
            for number, path in enumerate(written)
        )
        self.terms = [line.what for line in self.chronicle.lines].count(What.INAUGURATED)
        return self.elected(self.life.fenced_only)


lead = _Led.lead
