"""Lives of schedules: candidates whose career works by the clock, under faults drawn from the seed.

The judge looks at the records in ZooKeeper, and at what a witness outside of all processes has seen
of the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from leaderq import ScheduledCareer, Tick, schedule
from leaderq.base import clock
from leaderq.errors import LeaderqError
from leaderq.schedules.definition import CatchUp, Definition, OnCrash, Overlap, When, definitions_of
from leaderq.schedules.operating import ScheduleOperator
from leaderq.schedules.record import (
    PassedOver,
    ScheduleRecord,
    TickGap,
    TickOutcome,
    TickRun,
    decode,
)
from leaderq.term import Term
from leaderq.testing.nemesis.history import What
from leaderq.testing.simulation.cluster import ADDRESS
from leaderq.testing.simulation.faults import Faults
from leaderq.testing.simulation.scheduler import EPOCH_S
from leaderq.zookeeper import Create, connect
from simulation.led import CandidateLife, LedCandidates
from simulation.programs import note_of

FOLDER, EFFECTS = "/leaderq/life/schedules", "/effects"
_LONGEST_WORK_S = 2.0
_FARTHEST_S = 6.0


@dataclass(frozen=True, slots=True)
class ScheduleLife(CandidateLife):
    """A life of schedules. ``calendars``: so often the calendar of a host is set, by some seconds.
    ``requests``: so often an operator pauses, resumes or runs a schedule. Without a guardian, the
    work of a deposed leader goes on, and only what is fenced is judged.
    """

    calendars: int = 0
    requests: int = 0
    options: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Work:
    """Work on a tick, as the witness saw it."""

    name: str
    at: int
    attempt: int
    term: int
    began_s: float
    ended_s: float | None = None
    raised: bool = False
    wrote: bool = False
    requested: bool = False


class _Led(LedCandidates[ScheduleLife]):
    """One life, its candidates and its operator."""

    def __init__(self, life: ScheduleLife) -> None:
        super().__init__(life, 4.0)
        self.works: list[Work] = []
        self.first: dict[str, int] = {}
        """Of each schedule, after when it was first accounted for."""
        self.skews: dict[str, float] = {}

    def options(self) -> dict[str, Any]:
        drawn = self.draw
        return {
            "catch_up": ("last", "all", "none")[int(drawn() * 3)],
            "overlap": ("skip", "queue")[int(drawn() * 2)],
            "on_crash": ("again", "skip")[int(drawn() * 2)],
            "grace_s": 3.0 if drawn() < 0.3 else None,
            **self.life.options,
        }

    def career(self) -> type[ScheduledCareer]:
        """A career with two schedules, whose options are drawn."""
        led = self

        class Clockwork(ScheduledCareer):
            name = "life"

            def inaugurate(self, term: Term) -> None:
                note_of(led.chronicle, What.INAUGURATED, term)

            @schedule(every_s=1, **led.options())
            def fast(self, tick: Tick) -> None:
                led.work(tick)

            @schedule(every_s=2.5, tz="Europe/Berlin", **led.options())
            def slow(self, tick: Tick) -> None:
                led.work(tick)

        return Clockwork

    def begin(self) -> Faults:
        self.made = self.career()
        return self.candidates(self.made, 2.5)

    def work(self, tick: Tick) -> None:
        note_of(self.chronicle, What.UNIT, tick.term)
        at = round(tick.at.timestamp() * 1000)
        seen = Work(tick.name, at, tick.attempt, tick.term.number, self.world.now_s)
        seen.requested = tick.is_requested
        self.works.append(seen)
        self.world.note("work", tick=f"{tick.name}@{at}", attempt=tick.attempt, term=seen.term)
        drawn = self.world.faults()
        clock.sleep(_LONGEST_WORK_S * drawn**4)
        if drawn > 0.7 and tick.term.ending.is_set():
            raise RuntimeError("it was interrupted")
        if drawn < 0.1:
            seen.raised = True
            raise RuntimeError("as the life wants")
        if drawn < 0.6:
            seen.wrote = True
            key = "requested" if tick.is_requested else "tick"
            tick.write([Create(f"{EFFECTS}/{tick.name}-{key}-{at}")])
        note_of(self.chronicle, What.EFFECT, tick.term)
        seen.ended_s = self.world.now_s

    def keep_running(self) -> None:
        self.look()
        self.world.process("operator", "host-operator").spawn(self.help, "main")

    def look(self) -> None:
        for worker in self.cluster.workers:
            worker.start()
            worker.process.skew_s = self.skews.get(worker.name, 0.0)
        for path, data in self.cluster.znodes().items():
            name = path.removeprefix(f"{FOLDER}/")
            if name != path and name not in self.first:
                record = decode(data, path=path)
                known = [record.running, *record.history]
                times = [one.at - 1 for one in known if isinstance(one, TickRun) and not one.key]
                self.first[name] = min([record.last, *times])
        self.world.at(0.25, self.look)

    def plan(self) -> None:
        for _ in range(self.life.calendars):
            self.world.at(self.draw() * self.faults_s, self.set_calendar)

    def set_calendar(self) -> None:
        worker = self.cluster.workers[int(self.draw() * len(self.cluster.workers))]
        off_s = _FARTHEST_S * (2 * self.draw() - 1)
        worker.process.skew_s = self.skews[worker.name] = off_s
        self.world.note("calendar set", host=worker.name, off_s=round(off_s, 3))

    def help(self) -> None:
        """Make what the work writes into, and ask what operators ask."""
        life, draw = self.life, self.draw
        session = connect(ADDRESS, timeout_s=life.timeout_s, connect_timeout_s=60.0)
        with suppress(LeaderqError):
            session.ensure_path(EFFECTS)
        operator = ScheduleOperator(session, FOLDER)
        for _ in range(life.requests):
            clock.sleep(life.seconds / (life.requests + 3))
            drawn, name = draw(), ("fast", "slow")[int(draw() * 2)]
            with suppress(LeaderqError):
                if drawn < 0.4:
                    operator.run_now(name)
                elif drawn < 0.7:
                    operator.pause(name)
                else:
                    operator.resume(name)
        for name in ("fast", "slow"):
            with suppress(LeaderqError):
                operator.resume(name)

    def judged(self) -> list[str]:
        znodes, problems = self.cluster.znodes(), list[str]()
        for name, made in definitions_of(self.made).items():
            path = f"{FOLDER}/{name}"
            if path not in znodes:
                problems.append(f"{name}: it has no record")
                continue
            seen = [work for work in self.works if work.name == name]
            effects = {one for one in znodes if one.startswith(f"{EFFECTS}/{name}-")}
            record, now_s = decode(znodes[path], path=path), self.world.now_s
            found = ScheduleJudge(made, record, self.first[name], seen, effects, self.life, now_s)
            problems += [f"{name}: {each}" for each in found.problems()]
        self.terms = len({work.term for work in self.works})
        return problems + self.elected(fenced_only=not self.life.has_guardian)


lead = _Led.lead


def unaccounted(
    when: When, first: int, last: int, entries: Sequence[TickRun | TickGap]
) -> Iterator[str]:
    """What is wrong unless each tick is in one entry, and no more."""
    times = dict.fromkeys(when.between(first, last), 0)
    for one in entries:
        if isinstance(one, TickRun):
            ticks = [] if one.key is not None else [one.at]
        elif len(ticks := when.between(one.first - 1, one.last)) != one.count:
            yield f"a gap of {len(ticks)} ticks counts {one.count}: {one}"
        for at in ticks:
            times[at] = times.get(at, 0) + 1
    yield from (f"tick {at} has {count} records" for at, count in times.items() if count != 1)


@dataclass(frozen=True)
class ScheduleJudge:
    """What must hold of one schedule at the end of a life."""

    made: Definition
    record: ScheduleRecord
    first: int
    works: list[Work]
    effects: set[str]
    life: ScheduleLife
    now_s: float

    def problems(self) -> Iterator[str]:
        yield from self._accounted()
        yield from self._explained()
        yield from self._worked()
        yield from self._written()
        yield from self._alive()

    @property
    def runs(self) -> list[TickRun]:
        found = [one for one in self.record.history if isinstance(one, TickRun)]
        return found + ([self.record.running] if self.record.running else [])

    @property
    def gaps(self) -> list[TickGap]:
        return [one for one in self.record.history if isinstance(one, TickGap)]

    def _accounted(self) -> Iterator[str]:
        entries = [*self.runs, *self.gaps]
        yield from unaccounted(self.record.when, self.first, self.record.last, entries)

    def _explained(self) -> Iterator[str]:
        allowed = {PassedOver.MISSED}
        if self.made.overlap is Overlap.SKIP:
            allowed.add(PassedOver.OVERLAP)
        if self.made.grace_ms is not None:
            allowed.add(PassedOver.TOO_OLD)
        if self.life.requests:
            allowed.add(PassedOver.PAUSED)
        for gap in self.gaps:
            if gap.why not in allowed:
                yield f"{gap.why} does not explain {gap}"
            elif gap.why is PassedOver.OVERLAP and not any(
                run.ended is not None and run.began < gap.first and gap.last <= run.ended
                for run in self.runs
            ):
                yield f"nothing overlaps {gap}"

    def _worked(self) -> Iterator[str]:
        """At least once, or at most once; and nothing of which no record tells."""
        known = {(run.at, run.key is not None): run for run in self.runs}
        begun: dict[tuple[int, bool], list[Work]] = {}
        for work in self.works:
            begun.setdefault((work.at, work.requested), []).append(work)
        for key, run in known.items():
            works = begun.get(key, [])
            if run.outcome is TickOutcome.DONE and not any(
                one.ended_s is not None or one.wrote for one in works
            ):
                yield f"done, but the witness saw no end: {run}"
            if run.outcome is TickOutcome.FAILED and not any(one.raised for one in works):
                yield f"failed, but the work did not raise: {run}"
        for key, works in begun.items():
            attempts = [one.attempt for one in works]
            if key not in known:
                yield f"worked on {key} at {works[0].began_s:.3f}, of which no record tells"
            elif attempts != sorted(set(attempts)) or attempts[-1] > known[key].attempt:
                yield f"attempts {attempts} at {key}, and the record says {known[key]}"
            if self.made.on_crash is OnCrash.SKIP and len(works) > 1:
                yield f"{key} was begun {len(works)} times, although on_crash is skip"
            if len({one.term for one in works}) != len(works):
                yield f"{key} was begun twice in a term"

    def _written(self) -> Iterator[str]:
        done = {
            f"{EFFECTS}/{self.made.name}-{'requested' if run.key else 'tick'}-{run.at}"
            for run in self.runs
            if run.outcome is TickOutcome.DONE
        }
        yield from (f"{path} is there, but not recorded as done" for path in self.effects - done)
        for run in self.runs:
            if run.error and "NodeExists" in run.error:
                yield f"an effect was written twice: {run}"

    def _alive(self) -> Iterator[str]:
        now = round((EPOCH_S + self.now_s) * 1000)
        due = self.record.when.between(self.record.last, now)
        late_s = 2 * _LONGEST_WORK_S + 2.5 + (_FARTHEST_S if self.life.calendars else 0.0)
        if self.made.catch_up is CatchUp.ALL:  # it may still have a lot to catch up
            is_paused = any(gap.last == self.record.last for gap in self.gaps)
            if not is_paused and all(work.began_s < self.now_s - late_s for work in self.works):
                yield "nothing was worked on in a calm time"
        elif len(due) * self.made.when.every_ms > 1000 * late_s:
            yield f"{len(due)} ticks are due at the end of a calm time"
