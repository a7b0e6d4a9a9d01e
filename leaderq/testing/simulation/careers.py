"""Drives a user's own career through many simulated lives, and tells what went wrong in which
life.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from leaderq.base.arguments import (
    above_0,
    at_least,
    between,
    plain_function,
    require,
    wanted,
)
from leaderq.career import Career
from leaderq.kafka.career import KafkaCareer
from leaderq.kafka.handling.on_error import PoisonRecord
from leaderq.kafka.record import Partition, Record
from leaderq.testing.nemesis.checkers import Bounds, nothing_after_its_term
from leaderq.testing.nemesis.history import What
from leaderq.testing.simulation.acting import heard_by
from leaderq.testing.simulation.chronicle import Chronicle, failures
from leaderq.testing.simulation.cluster import SimulatedCluster
from leaderq.testing.simulation.faults import Faults
from leaderq.testing.simulation.installing import installed, lives_in_a_row
from leaderq.testing.simulation.kafka.faults import DrainFaults
from leaderq.testing.simulation.kafka.installing import (
    KafkaLines,
    kafka_installed,
    simulated_kafka,
)
from leaderq.testing.simulation.kafka.network import SimulatedKafka
from leaderq.testing.simulation.scheduler import LifeHangs, World

_CALM_S = 20.0
_TOLD_LINES = 60


class LifeFailed(AssertionError):
    """A career did something wrong in the life of ``seed``; ``problems`` has a sentence for each
    fault.
    """

    def __init__(self, seed: int, problems: Sequence[str], history: Sequence[str]) -> None:
        self.seed, self.problems, self.history = seed, list(problems), list(history)
        told = "\n".join(problems)
        last = "\n".join(self.history[-_TOLD_LINES:])
        super().__init__(f"seed {seed}: {told}\n\nthe end of that life:\n{last}")

    def __reduce__(self) -> tuple[object, ...]:
        return LifeFailed, (self.seed, self.problems, self.history)


@dataclass(frozen=True, slots=True)
class SimulationReport:
    """How many lives, terms and acts were tried; no fault was found in them."""

    lives: int
    terms: int
    acts: int


@dataclass
class _UserLife:
    seed: int
    make: Callable[[], Career]
    candidates: int
    records: int
    partitions: int
    faults: int
    seconds: float
    timeout_s: float
    acts: list[str] = field(default_factory=list)
    handled: set[tuple[Partition, int]] = field(default_factory=set)


def simulate(
    career: Callable[[], Career],
    *,
    seeds: int | Iterable[int] = 1000,
    records: int = 40,
    partitions: int = 2,
    candidates: int = 3,
    faults: int = 5,
    seconds: float = 20.0,
    timeout_s: float = 4.0,
) -> SimulationReport:
    """Lead ``career`` through one simulated life for each seed. ``seeds`` are the seeds, or how
    many there are, from 0. Each life has ``candidates`` candidates, and ``faults`` faults within
    ``seconds`` of simulated time; a session lasts ``timeout_s`` seconds.

    ``career`` is your class, unchanged. A Kafka career finds ``records`` records in each of its
    topics, in ``partitions`` partitions. Let it call :func:`~leaderq.testing.simulation.acted`
    where it does something to the world.

    *Guarantees:* raises :class:`LifeFailed` for the first seed in which something was acted twice,
    a record was skipped, or a former leader acted beside the next one. The same seed leads the same
    life, so ``seeds=[4711]`` repeats one. *Not guaranteed:* anything about a career that reads
    clocks, chance or servers without leaderq, or starts threads of its own; that a life ends if the
    career computes for ever without calling leaderq. Repeated calls of ``handle`` are no failure:
    only what was ``acted`` counts.

    :raises ConfigurationError: an argument cannot be used.
    :raises WouldDeadlock: another life is being led in this Python process.
    """
    are_seeds = isinstance(seeds, Iterable) and not isinstance(seeds, str | bytes)
    is_count = type(seeds) is int and seeds >= 1
    require(
        plain_function("career", career),
        wanted("seeds", seeds, are_seeds or is_count, "1 or more, or the seeds themselves"),
        at_least("records", records, 0),
        at_least("partitions", partitions, 1),
        at_least("candidates", candidates, 1),
        at_least("faults", faults, 0),
        above_0("seconds", seconds, "seconds"),
        between("timeout_s", timeout_s, 0.2, 600.0),
    )
    lives = terms = acts = 0
    options = (career, candidates, records, partitions, faults, seconds, timeout_s)
    with lives_in_a_row():
        for seed in range(seeds) if isinstance(seeds, int) else seeds:
            life = _UserLife(seed, *options)
            terms += _lead(life)
            lives, acts = lives + 1, acts + len(life.acts)
    require(wanted("seeds", seeds, lives > 0, "1 or more, or the seeds themselves"))
    return SimulationReport(lives, terms, acts)


def _lead(life: _UserLife) -> int:
    world = World(f"career {life.seed}")
    cluster = SimulatedCluster(world, timeout_s=life.timeout_s)
    kafka, chronicle = simulated_kafka(world), Chronicle(world)
    problems: list[str] = []
    terms: dict[int, Any] = {}
    hear = partial(_heard, life, world, chronicle, terms)
    with installed(world, cluster.network), kafka_installed(kafka), heard_by(hear):
        first: Any = life.make()
        kinds = "give a LeaderCareer or an AsyncLeaderCareer"
        wrong = f"what career() returns={first!r}: {kinds}"
        require(None if isinstance(first, Career) else wrong)
        topics = _filled(life, first, kafka) if isinstance(first, KafkaCareer) else []
        for number in range(life.candidates):
            made = partial(_observed, life, world, chronicle, terms)
            cluster.worker(f"c{number}", made, kafka=kafka.address)
        lines = kafka.network
        assert isinstance(lines, KafkaLines)
        trouble = DrainFaults(cluster, kafka, lines, Faults(cluster, chronicle))
        try:
            cluster.keep_running()
            trouble.plan(life.faults, life.seconds)
            world.run(life.seconds)
            trouble.heal_all()
            chronicle.note(What.HEALED)
            is_done = partial(_is_done, life, topics) if topics else None
            world.run(life.seconds + (75.0 if topics else _CALM_S), unless=is_done)
        except LifeHangs as error:
            problems.append(str(error))
        problems += nothing_after_its_term(chronicle.lines, Bounds(life.timeout_s))
        problems += _twice(life.acts) + _skipped(life, topics)
        problems += [one for one in failures(world) if "did not answer within" not in one]
        history = list(world.lines())
        problems += _idle(life, history)
    if problems:
        raise LifeFailed(life.seed, problems, history)
    return sum(1 for line in chronicle.lines if line.what is What.INAUGURATED)


def _heard(
    life: _UserLife, world: World, chronicle: Chronicle, terms: dict[int, Any], what: str
) -> None:
    task = world.current
    if task is None or not task.process.alive:
        return
    pid = task.process.pid
    term = terms.get(pid)
    life.acts.append(str(what))
    world.note("acted", doing=what)
    if term is not None:
        chronicle.note(What.EFFECT, who=term.candidate, pid=pid, term=term.number)


def _observed(life: _UserLife, world: World, chronicle: Chronicle, terms: dict[int, Any]) -> Career:
    career: Any = life.make()
    inaugurate = career.inaugurate

    def inaugurated(term: Any) -> Any:
        task = world.current
        pid = 0 if task is None else task.process.pid
        terms[pid] = term
        chronicle.note(What.INAUGURATED, who=term.candidate, pid=pid, term=term.number)
        return inaugurate(term)  # a coroutine, of an async career

    career.inaugurate = inaugurated
    if isinstance(career, KafkaCareer):
        handling = _handling_awaited if career._is_async else _handling
        career.handle = partial(handling, life, world, career.handle)
    made: Career = career
    return made


def _handling(
    life: _UserLife, world: World, handle: Callable[..., None], records: Sequence[Record], term: Any
) -> None:
    with _noted(life, world, records, term):
        handle(records, term)


async def _handling_awaited(
    life: _UserLife, world: World, handle: Callable[..., Any], records: Sequence[Record], term: Any
) -> None:
    with _noted(life, world, records, term):
        await handle(records, term)


@contextmanager
def _noted(life: _UserLife, world: World, records: Sequence[Record], term: Any) -> Iterator[None]:
    done = list(records)
    try:
        yield
    except PoisonRecord as exc:
        done = done[: next((i for i, one in enumerate(done) if one is exc.record), 0)]
        raise
    except BaseException:
        done = []
        raise
    finally:
        for one in done:
            life.handled.add((one.topic_partition, one.offset))
            world.note("handled", record=f"{one.topic_partition}@{one.offset}", term=term.number)


def _filled(life: _UserLife, career: Any, kafka: SimulatedKafka) -> list[tuple[Partition, int]]:
    is_named = isinstance(career.topics, Iterable)
    remedy = "names, in a subclass of yours: which topics a pattern matches is not known here"
    require(wanted(f"{type(career).__qualname__}.topics", career.topics, is_named, remedy))
    topics = [career.topics] if isinstance(career.topics, str) else list(career.topics)
    filled = []
    for topic in topics:
        kafka.acts(lambda all_, name=topic: all_.create_topic(name, life.partitions))  # type: ignore[misc]
        for number in range(life.records):
            where = Partition(topic, number % life.partitions)
            row = Record(topic, where.number, -1, 0, b"%d" % number, b"%d" % number, [])
            kafka.acts(lambda all_, at=where, one=row: all_.log_of(at).append([one]))  # type: ignore[misc]
            filled.append((where, number // life.partitions))
    return filled


def _is_done(life: _UserLife, wanted: Sequence[tuple[Partition, int]]) -> bool:
    return len(life.handled) >= len(wanted)


def _twice(acts: Iterable[str]) -> list[str]:
    counts: dict[str, int] = {}
    for what in acts:
        counts[what] = counts.get(what, 0) + 1
    return [f"done {count} times: {what}" for what, count in counts.items() if count > 1]


def _skipped(life: _UserLife, wanted: Iterable[tuple[Partition, int]]) -> list[str]:
    missing = [f"{where}@{at}" for where, at in wanted if (where, at) not in life.handled]
    return [f"skipped: {', '.join(missing)}"] if missing else []


def _idle(life: _UserLife, history: Iterable[str]) -> list[str]:
    """The problem of a life in which the career did nothing; such a life would pass all other
    checks.
    """
    if life.acts or life.handled:
        return []
    logged = next((line for line in history if " logged " in line), "nothing was logged")
    return [f"it did nothing in this life, or never called acted(): {logged}"]
