"""leaderq's side of ``drain.py``: a career driven as the runner drives it, without an election."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from drain_bare import Job, Stopwatch, collecting_seldom

from leaderq.clock import now_s
from leaderq.config import Settings
from leaderq.events import EventBus
from leaderq.kafka import KafkaLeaderCareer, Record
from leaderq.term import OpenTerm, Reason, Term
from leaderq.zookeeper import Session


class Reading(KafkaLeaderCareer):
    """Reads key, value and offset of every record."""

    auto_offset_reset = "earliest"
    watch: Stopwatch

    def inaugurate(self, term: Term) -> None:
        """Nothing to do."""

    def handle(self, records: Sequence[Record], term: Term) -> None:
        self.watch.batch_came()
        for record in records:
            record.key, record.value, record.offset  # noqa: B018
        self.handled = len(records)

    def handOver(self, term: Term) -> None:  # noqa: N802
        """Nothing to do."""

    def load_offsets(self, term: Term) -> Mapping[Any, int]:
        return {}


class Transforming(Reading):
    """Produces each record again."""

    offsets = "transaction"
    out = ""

    def handle(self, records: Sequence[Record], term: Term) -> None:
        self.watch.batch_came()
        for record in records:
            self.produce(self.out, record.value, key=record.key)
        self.handled = len(records)


def drained(job: Job, session: Session, *, client: str, offsets: str = "kafka", transform: bool = False) -> float:
    """Records a second of a career, from its first batch handed out to its last one saved."""
    kind: Any = Transforming if transform else Reading
    declared = {"topics": job.topic, "client": client, "max_records": job.batch, "offsets": offsets, "out": job.out}
    career: Any = type("Drained", (kind,), declared)()
    career.settings = Settings(kafka=job.address, career=job.name)
    career.session, career.events, career.candidate_id = session, EventBus(), "candidate"
    career.watch = watch = Stopwatch(job.count)
    term = OpenTerm(
        number=1,
        id=job.name,
        career=job.name,
        candidate="candidate",
        deadline=now_s() + 3600,
        write=lambda _term, operations: session.multi(operations),
    )
    session.ensure_path(f"/leaderq/{job.name}")  # as the election does
    career.prepare()
    try:
        career._begin(term)
        with collecting_seldom():
            while watch.is_running:
                career.handled = 0
                career.execute(term)  # returns when the batch is saved
                if career.handled:
                    watch.batch_done(career.handled)
    finally:
        term.wind_up(Reason.STEP_DOWN)
        career._finish(term)
        term.close()
        career.retire()
    return watch.rate
