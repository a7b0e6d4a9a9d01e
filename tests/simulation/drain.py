"""Lives of a drain: workers with a Kafka career whose handler is rude, under faults drawn from the
seed; then all is healed, and every record must be handled.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple
from unittest import mock

from leaderq import AsyncKafkaLeaderCareer, AsyncTerm
from leaderq.base import clock
from leaderq.errors import LeaderqError
from leaderq.kafka import DatabaseOffsets, KafkaLeaderCareer, retry
from leaderq.kafka.consuming import term_consumer
from leaderq.kafka.record import Partition, Record
from leaderq.kafka.stores import transaction_offsets
from leaderq.term import Term
from leaderq.testing.nemesis.checkers import Bounds, nothing_after_its_term
from leaderq.testing.nemesis.history import What
from leaderq.testing.simulation.chronicle import Chronicle
from leaderq.testing.simulation.cluster import ADDRESS
from leaderq.testing.simulation.faults import Faults
from leaderq.testing.simulation.kafka.consumer import SimulatedConsumer
from leaderq.testing.simulation.kafka.faults import DrainFaults
from leaderq.testing.simulation.kafka.installing import kafka_installed, simulated_kafka
from leaderq.zookeeper import Create, connect
from simulation.led import Led, Life
from simulation.programs import note_of

STORES = ("kafka", "zookeeper", "transaction", "external")
SOURCE, RESULTS, EFFECTS = "orders", "invoices", "/effects"
_LATE_S = 75.0
"""How long after healing everything must be handled: a transaction may be open for 60 s."""
_AFTERMATH_S = 12.0
_DATABASE = "file:drain?mode=memory&cache=shared"


@dataclass(frozen=True, slots=True)
class DrainLife(Life):
    """A life of a drain. ``zombies``: so many leaders are deposed and do not know it, and no
    guardian is there: what the store refuses is all that stands between them and the next.
    ``by_key``: only the records of each key are in order, several keys at a time, on threads, or
    ``in_coroutines``.
    """

    store: str = "kafka"
    brokers: int = 2
    zombies: int = 0
    by_key: bool = False
    in_coroutines: bool = False
    commit_behind: bool = False


KEYS = 3
"""How many keys a partition has."""


class Handled(NamedTuple):
    """A record was handled, by so much of a history."""

    at_s: float
    term: int
    where: Partition
    offset: int
    key: int = 0


# ---- judges --------------------------------------------------------------------------------------


def skipped(handled: Iterable[Handled], ends: dict[Partition, int]) -> list[str]:
    """Records that nobody handled."""
    seen = {(one.where, one.offset) for one in handled}
    missing = [
        f"{where}@{offset}"
        for where, end in ends.items()
        for offset in range(end)
        if (where, offset) not in seen
    ]
    return [f"skipped: {', '.join(missing)}"] if missing else []


def out_of_order(handled: Iterable[Handled]) -> list[str]:
    """Records handled before one ahead of them in their partition had been."""
    done: dict[Partition, int] = {}
    problems = []
    for one in handled:
        expected = done.get(one.where, 0)
        if one.offset > expected:
            problems.append(
                f"out of order: {one.where}@{one.offset} was handled by term {one.term} at"
                f" {one.at_s:.3f}, before {one.where}@{expected}"
            )
        done[one.where] = max(expected, one.offset + 1)
    return problems


def keys_out_of_order(handled: Sequence[Handled]) -> list[str]:
    """The same within each key of a partition."""
    offsets: dict[Partition, set[int]] = {}
    keyed = [one._replace(where=Partition(f"{one.where}-key", one.key)) for one in handled]
    for one in keyed:
        offsets.setdefault(one.where, set()).add(one.offset)
    at = {
        key: {offset: at for at, offset in enumerate(sorted(own))} for key, own in offsets.items()
    }
    return out_of_order(one._replace(offset=at[one.where][one.offset]) for one in keyed)


def repeated_without_cause(
    handled: Iterable[Handled], troubles: Sequence[tuple[float, float]]
) -> list[str]:
    """Records handled again although nothing happened since they were handled before."""
    last: dict[tuple[Partition, int], float] = {}
    problems = []
    for one in handled:
        before_s = last.get((one.where, one.offset))
        if before_s is not None and not any(
            begin <= one.at_s and before_s <= end + _AFTERMATH_S for begin, end in troubles
        ):
            problems.append(
                f"repeated: {one.where}@{one.offset} was handled at {before_s:.3f}, and again by"
                f" term {one.term} at {one.at_s:.3f}, although no end was unclean"
            )
        last[one.where, one.offset] = one.at_s
    return problems


def not_exactly_once(effects: Iterable[str], wanted: Iterable[str]) -> list[str]:
    """Effects that are missing, or there twice, or not in the order of their partition."""
    effects = list(effects)
    counts, problems = Counter(effects), []
    for name in wanted:
        if counts[name] != 1:
            problems.append(f"not exactly once: {name} took effect {counts[name]} times")
    last: dict[str, int] = {}
    for name in effects:
        where, _, offset = name.rpartition("@")
        if int(offset) < last.get(where, -1):
            problems.append(f"out of order: {name} took effect behind {where}@{last[where]}")
        last[where] = int(offset)
    return problems


def not_committed(committed: dict[Partition, int], ends: dict[Partition, int]) -> list[str]:
    """Partitions whose stored offset is not their end, once all is done."""
    return [
        f"stored offset of {where} is {committed.get(where)}, and its end is {end}"
        for where, end in ends.items()
        if committed.get(where) != end
    ]


# ---- the life ------------------------------------------------------------------------------------


class _Witness:
    """What the careers of one life tell."""

    def __init__(self, led: _Led) -> None:
        self.world, self.chronicle, self.opened = led.world, Chronicle(led.world), led.opened
        self.forgetful = 0.0 if led.life.zombies else 0.03
        """How often the user's database does not answer."""
        self.handled: list[Handled] = []
        self.database = self.connection()

    def connection(self) -> sqlite3.Connection:
        made = sqlite3.connect(_DATABASE, uri=True, timeout=0.0)
        self.opened.callback(made.close)
        return made

    def connected(self) -> sqlite3.Connection:
        """To the user's database; it rolls back what a process has left open when it dies."""
        made = self.connection()
        task = self.world.current
        task.process.deaths.append(made.close)
        return made

    def note(self, what: What, term: Term) -> None:
        note_of(self.chronicle, what, term)

    def done(self, record: Record, term: Term) -> None:
        where = record.topic_partition
        self.world.note("handled", record=f"{where}@{record.offset}", term=term.number)
        key = int(record.key or 0)
        self.handled.append(Handled(self.world.now_s, term.number, where, record.offset, key))


class _Career:
    """What careers of threads and of coroutines have in common."""

    name = "drain"
    topics = SOURCE
    max_records = 7
    auto_offset_reset = "earliest"
    on_error = retry(3, 0.2, then="raise")
    witness: _Witness
    take_effect: Callable[[str, Record, bool], object]

    def inaugurated(self: Any, term: Any) -> None:
        self.witness.note(What.INAUGURATED, term)
        if self.offsets == "zookeeper":
            self.session.ensure_path(EFFECTS)

    def begun(self, term: Any) -> tuple[float, float]:
        """A record is begun: what was drawn, and how long it takes; or a rude handler."""
        witness, drawn = self.witness, self.witness.world.faults()
        witness.note(What.EFFECT, term)
        if drawn < 0.03:
            raise ValueError("a rude handler")
        return drawn, 0.01 + (1.5 if drawn > 0.49 else 0.3 * drawn) if drawn < 0.5 else 0.0

    def done(self, record: Record, term: Any, drawn: float) -> None:
        is_refused = 0.03 <= drawn < 0.045  # an effect that no commit accepts
        self.take_effect(f"{record.topic_partition}@{record.offset}", record, is_refused)
        self.witness.done(record, term)


class _Drain(_Career, KafkaLeaderCareer):
    def inaugurate(self, term: Term) -> None:
        self.inaugurated(term)

    def handle_record(self, record: Record, term: Term) -> None:
        drawn, takes_s = self.begun(term)
        if takes_s:
            clock.sleep(takes_s)
        self.done(record, term, drawn)

    def handOver(self, term: Any) -> None:  # noqa: N802
        self.witness.note(What.HANDED_OVER, term)


class _AsyncDrain(_Career, AsyncKafkaLeaderCareer):
    concurrency = 3

    async def inaugurate(self, term: AsyncTerm) -> None:
        self.inaugurated(term)

    async def handle_record(self, record: Record, term: AsyncTerm) -> None:
        drawn, takes_s = self.begun(term)
        if takes_s:
            await asyncio.sleep(takes_s)
        self.done(record, term, drawn)

    async def handOver(self, term: AsyncTerm) -> None:  # noqa: N802
        self.witness.note(What.HANDED_OVER, term)


class _ToKafka:
    offsets = "kafka"

    def take_effect(self, name: str, record: Record, is_refused: bool) -> None:
        """With the offsets, where the store can."""


class _ToZooKeeper:
    offsets = "zookeeper"

    def take_effect(self: Any, name: str, record: Record, is_refused: bool) -> None:
        if is_refused:
            self.write_with_offsets(Create(EFFECTS))
        self.write_with_offsets(Create(f"{EFFECTS}/e-", name.encode(), sequential=True))


class _InTransactions:
    offsets = "transaction"

    def take_effect(self: Any, name: str, record: Record, is_refused: bool) -> None:
        if is_refused:
            self.produce("no-such-topic", b"", partition=0)
        self.produce(RESULTS, name.encode(), partition=record.partition)


class _ExternalDrain(_Drain):
    offsets = "external"
    cursor: Any

    def prepare(self) -> None:
        self.store = DatabaseOffsets(self.witness.connected, career="drain")
        super().prepare()

    def load_offsets(self, term: Term) -> Mapping[Partition, int]:
        return self.store.load(term)

    def handle(self, records: Sequence[Record], term: Term) -> None:
        with self.store.transaction(records, term) as self.cursor:
            super().handle(records, term)
        if self.witness.world.faults() < self.witness.forgetful:
            raise sqlite3.OperationalError("the answer to COMMIT was lost")

    def take_effect(self, name: str, _record: Record, _is_refused: bool) -> None:
        self.cursor.execute("INSERT INTO effects VALUES (?)", (name,))


EFFECTS_OF: dict[str, type] = dict(
    zip(STORES, (_ToKafka, _ToZooKeeper, _InTransactions), strict=False)
)


class _Led(Led[DrainLife]):
    """One life, its servers and brokers."""

    def __init__(self, life: DrainLife) -> None:
        super().__init__(life, seed=f"drain {life.store} {life.seed}")
        self.kafka = simulated_kafka(self.world, brokers=life.brokers)
        self.witness = _Witness(self)
        self.chronicle = self.witness.chronicle
        self.ends: dict[Partition, int] = {}

    def begin(self) -> DrainFaults:
        life, world, witness = self.life, self.world, self.witness
        for context in (kafka_installed(self.kafka), _patience(self.draw()), self.breaking()):
            self.opened.enter_context(context)
        DatabaseOffsets(witness.connection, career="drain").create_table()
        witness.database.execute("CREATE TABLE effects (name)")
        self.fill()
        for number in range(2 + int(world.faults() * 2)):
            watched = {"has_guardian": not life.zombies}
            self.cluster.worker(f"c{number}", self.career, kafka=self.kafka.address, **watched)
        faults = Faults(self.cluster, self.chronicle)
        self.faults = DrainFaults(self.cluster, self.kafka, self.kafka.network, faults)
        return self.faults

    def plan(self) -> None:
        for _ in range(self.life.zombies):
            self.world.at(1.0 + self.draw() * self.life.seconds, self.depose)

    def end(self) -> None:
        self.chronicle.note(What.HEALED)
        # a little longer than until all is stored, so that a repetition shows
        until_s = self.life.seconds + _LATE_S
        self.world.run(until_s, unless=lambda: self.committed() == self.ends)
        self.world.run(self.world.now_s + 1.0)

    def judged(self) -> list[str]:
        life, handled, lines = self.life, self.witness.handled, self.chronicle.lines
        self.terms = sum(1 for line in lines if line.what is What.INAUGURATED)
        problems = skipped(handled, self.ends) + not_committed(self.committed(), self.ends)
        problems += self.effects_judged()
        # a worker that cannot reach Kafka when it starts ends, and is started again
        problems += [one for one in super().judged() if "did not answer within" not in one]
        if life.zombies:  # only what goes through the store is judged
            return problems
        problems += keys_out_of_order(handled) if life.by_key else out_of_order(handled)
        problems += nothing_after_its_term(lines, Bounds(life.timeout_s))
        if life.store == "kafka":
            troubles = [(line.at, line.at + 1.6 * life.timeout_s) for line in lines if line.kind]
            problems += repeated_without_cause(handled, [*self.faults.spans, *troubles])
        return problems

    def breaking(self) -> Any:
        """Now and then a client library raises what nobody expects, while it hears no answers."""
        real, world, lines = SimulatedConsumer.poll, self.world, self.kafka.network

        def poll(consumer: SimulatedConsumer, timeout_s: float, most: int) -> Any:
            task = world.current
            if task is not None and task.process.host in lines.losing and world.faults() < 0.05:
                raise ValueError("the client library breaks")
            return real(consumer, timeout_s, most)

        return mock.patch.object(SimulatedConsumer, "poll", poll)

    def depose(self) -> None:
        """A leader's machine is paused with its clock; or somebody takes its place in line away
        while it hears nothing, though what it asks for arrives.
        """
        world, cluster = self.world, self.cluster
        leading = [one for one in cluster.workers if one.is_leading and one.process.alive]
        if not leading:
            return
        worker, lasts_s = leading[0], cluster.timeout_s * (0.5 + 1.5 * world.faults())
        process, runner = worker.process, worker.runner
        tenure = None if runner is None else runner._candidate._campaign.tenure
        world.note("deposed", process=process.name)
        if tenure is None or world.faults() < 0.5:
            process.freeze_with_clock()
            world.at(lasts_s, process.thaw)
            return

        def take_away() -> None:
            with suppress(LeaderqError):
                session = connect(ADDRESS, timeout_s=20.0)
                session.delete(tenure.seat.path)
                session.close()

        world.process("operator", "host-operator").spawn(take_away, "operator")
        cluster.network.cut(process.host, there=False, back=True)
        world.at(lasts_s, lambda: cluster.network.heal(process.host))

    def career(self) -> Any:
        life = self.life
        base = _AsyncDrain if life.in_coroutines else _Drain
        kind = _ExternalDrain if life.store == "external" else base
        words: dict[str, Any] = {"commit_behind": life.commit_behind}
        if life.by_key:
            words |= {"order": "key"} if life.in_coroutines else {"order": "key", "workers": 3}
        effects = [EFFECTS_OF[life.store]] if life.store in EFFECTS_OF else []
        career: Any = type("_Made", (*effects, kind), words)()
        career.witness = self.witness
        return career

    def fill(self) -> None:
        partitions = 2 + int(self.world.faults() * 2)
        records = 30 + int(self.world.faults() * 71)
        for topic in (SOURCE, RESULTS):
            self.kafka.acts(lambda all_, topic=topic: all_.create_topic(topic, partitions))
        for number in range(records):
            where = Partition(SOURCE, number % partitions)
            self.ends[where] = number // partitions + 1
            key = b"%d" % (number // partitions % KEYS)
            row = Record(SOURCE, where.number, -1, 0, key, b"%d" % number, [])
            # half of them are there, the others come while faults do
            delay_s = 0.0 if number % 2 else self.world.faults() * 10.0
            self.world.at(delay_s, partial(self.kafka.acts, partial(appended, where, row)))

    def committed(self) -> dict[Partition, int]:
        if self.life.store == "external":
            rows = "SELECT topic, partition, next_offset FROM leaderq_offsets WHERE partition >= 0"
            with suppress(sqlite3.OperationalError):  # somebody writes
                found = self.witness.database.execute(rows)
                return {Partition(topic, number): at for topic, number, at in found}
            return {}
        if self.life.store == "zookeeper":
            data = self.cluster.znodes().get(f"/leaderq/drain/offsets/{SOURCE}")
            kept = {} if data is None else json.loads(data)["offsets"]
            return {Partition(SOURCE, int(number)): at for number, at in kept.items()}
        brokers = self.kafka.cluster
        brokers.advance()
        return {where: kept.offset for where, kept in brokers.group("drain").offsets.items()}

    def effects_judged(self) -> list[str]:
        if self.life.store == "kafka":
            return []
        wanted = [f"{where}@{offset}" for where, end in self.ends.items() for offset in range(end)]
        if self.life.store == "zookeeper":
            found = written(self.cluster.znodes())
        elif self.life.store == "external":
            effects = self.witness.database.execute("SELECT name FROM effects")
            found = [name for (name,) in effects]
        else:
            results = [one._replace(topic=RESULTS) for one in self.ends]
            found = [name for one in results for name in visible(self.kafka.cluster, one)]
        return not_exactly_once(found, wanted)


lead = _Led.lead


def _patience(drawn: float) -> Any:
    """The faults of a life are short: so is, in many lives, how long a career waits for Kafka."""
    if drawn < 0.3:
        names = "REBUILD_AFTER_S", "REBUILD_JOINING_AFTER_S"
        return mock.patch.multiple(term_consumer, **dict.fromkeys(names, 2.0))
    if drawn < 0.6:
        return mock.patch.object(transaction_offsets, "TRANSACTION_TIMEOUT_S", 4.0)
    return nullcontext()


def appended(where: Partition, row: Record, brokers: Any) -> None:
    brokers._topics[where.topic].places[where.number].log.append([row])  # whoever is away
    brokers.log_changes += 1


def visible(brokers: Any, where: Partition) -> list[str]:
    """What a consumer that reads committed results sees."""
    rows = [row for _, row, is_visible in brokers.log_of(where).everything() if is_visible]
    return [(row.value or b"").decode() for row in rows if row is not None]


def written(znodes: Mapping[str, bytes]) -> list[str]:
    """The effects that lie in ZooKeeper."""
    return [znodes[path].decode() for path in sorted(znodes) if path.startswith(f"{EFFECTS}/")]
