"""A topic, and careers that drain it, for scenarios; see :mod:`simulation.scenarios`."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

from leaderq.kafka import KafkaLeaderCareer
from leaderq.kafka.record import Partition, Record
from leaderq.term import Term
from leaderq.testing.simulation.cluster import SimulatedWorker
from leaderq.testing.simulation.kafka.installing import kafka_installed, simulated_kafka
from simulation.drain import (
    EFFECTS,
    EFFECTS_OF,
    RESULTS,
    SOURCE,
    Handled,
    appended,
    not_exactly_once,
    out_of_order,
    skipped,
    visible,
    written,
)
from simulation.scenarios import Scene

ORDERS = Partition(SOURCE, 0)


class Drained(KafkaLeaderCareer):
    """Notes what it handles, after what the scenario's ``rule(record)`` does to it."""

    name = "c"
    topics = SOURCE
    max_records = 5
    auto_offset_reset = "earliest"
    drain: Drain
    take_effect: Callable[[str, Record, bool], object]

    def inaugurate(self, term: Term) -> None:
        self.drain.note("inaugurated", term)
        if self.offsets == "zookeeper":
            self.session.ensure_path(EFFECTS)

    def handle_record(self, record: Record, term: Term) -> None:
        self.drain.rule(self, record)
        self.take_effect(f"{record.topic_partition}@{record.offset}", record, False)
        self.drain.done(record, term)

    def handOver(self, term: Term) -> None:  # noqa: N802
        self.drain.note("handed over", term)


class Drain:
    """A partition with so many records, numbered from 0, and workers of one career."""

    def __init__(
        self,
        s: Scene,
        offsets: str = "kafka",
        *,
        records: int = 30,
        rule: Callable[[Drained, Record], object] = lambda _career, _record: None,
        **attributes: Any,
    ) -> None:
        self.s, self.rule = s, rule
        self.kafka = simulated_kafka(s.world)
        self.lines = self.kafka.network
        effects = EFFECTS_OF[offsets]
        self.career: type[Drained] = type(
            "Billing", (effects, Drained), {"drain": self, **attributes}
        )
        self.handled: list[Handled] = []
        self.told: list[tuple[float, str, str, Term]] = []
        """When, what and who: inaugurations and hand-overs."""
        self._records = records
        self._open = ExitStack()

    def __enter__(self) -> Drain:
        self._open.enter_context(kafka_installed(self.kafka))
        for topic in (SOURCE, RESULTS):
            self.kafka.acts(lambda all_, name=topic: all_.create_topic(name, 1))
        count, self._records = self._records, 0
        self.feed(count)
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def feed(self, count: int) -> None:
        for number in range(self._records, self._records + count):
            row = Record(*ORDERS, -1, 0, b"k", b"%d" % number, [])
            self.kafka.acts(partial(appended, ORDERS, row))
        self._records += count

    def workers(self, names: str, **settings: Any) -> list[SimulatedWorker]:
        """Workers in this order of the line, which are started again when they have died."""
        made = []
        for name in names:
            given = {"kafka": self.kafka.address, "career": "c", **settings}
            made.append(self.s.cluster.worker(name, self.career, **given))
            made[-1].start()
            self.s.until(lambda: len(self.s.line()) >= len(made))
        self.s.cluster.keep_running()
        return made

    def note(self, what: str, term: Term) -> None:
        task = self.s.world.current
        self.s.world.note(what, term=term.number, why=str(term.reason and term.reason.value))
        self.told.append((self.s.now_s, what, task.process.host.removeprefix("host-"), term))

    def terms(self, what: str = "inaugurated", who: str = "") -> list[Term]:
        return [term for _, one, name, term in self.told if one == what and name.startswith(who)]

    def done(self, record: Record, term: Term) -> None:
        self.s.world.note("handled", offset=record.offset, term=term.number)
        self.handled.append(
            Handled(self.s.now_s, term.number, record.topic_partition, record.offset)
        )

    def by(self, term: int) -> list[int]:
        return [one.offset for one in self.handled if one.term == term]

    @property
    def committed(self) -> int:
        """The offset that the group has committed; 0: none."""
        self.kafka.cluster.advance()
        kept = self.kafka.cluster.group("c").offsets.get(ORDERS)
        return 0 if kept is None else kept.offset

    def await_all(self, within_s: float = 60.0) -> None:
        """Until all is handled, and a little longer, so that a repetition shows."""
        self.s.until(
            lambda: {one.offset for one in self.handled} >= set(range(self._records)), within_s
        )
        self.s.run(5.0)

    def problems(self) -> list[str]:
        ends = {ORDERS: self._records}
        problems = skipped(self.handled, ends) + out_of_order(self.handled)
        if self.career.offsets != "kafka":
            wanted = [f"{ORDERS}@{offset}" for offset in range(self._records)]
            problems += not_exactly_once(self.effects(), wanted)
        return problems

    def effects(self) -> list[str]:
        if self.career.offsets == "transaction":
            return self.results()
        return written(self.s.cluster.znodes())

    def letters(self) -> list[str]:
        topics = [one for one in self.kafka.cluster.topics() if one.endswith("-dead")]
        return [row for topic in topics for row in self.results(topic)]

    def results(self, topic: str = RESULTS) -> list[str]:
        """What a consumer that reads committed results sees."""
        return visible(self.kafka.cluster, Partition(topic, 0))
