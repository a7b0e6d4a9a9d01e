"""leaderq's side of ``drain.py``: a career driven as the runner drives it, without an election."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from drain_bare import CALL_S, CALLS_AT_ONCE, WAIT_S, Job, Stopwatch, collecting_seldom

from leaderq import AsyncTerm
from leaderq.base.clock import now_s
from leaderq.config import Settings
from leaderq.events import EventBus
from leaderq.kafka import AsyncKafkaLeaderCareer, KafkaLeaderCareer, Record
from leaderq.kafka.career import KafkaCareer
from leaderq.term import OpenTerm, Reason, Term
from leaderq.zookeeper import Session


class Reading(KafkaLeaderCareer):
    """Reads key, value and offset of every record."""

    auto_offset_reset = "earliest"
    watch: Stopwatch
    handled = 0

    def inaugurate(self, term: Term) -> None:
        """Nothing to do."""

    def handle(self, records: Sequence[Record], term: Term) -> None:
        self.watch.batch_came()
        for record in records:
            record.key, record.value, record.offset  # noqa: B018
        self.handled += len(records)

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
        self.handled += len(records)


class Waiting(Reading):
    """Waits for something, as long as it has records; may be called on several threads."""

    _lock = threading.Lock()

    def handle(self, records: Sequence[Record], term: Term) -> None:
        self.watch.batch_came()
        time.sleep(len(records) * WAIT_S)
        with self._lock:
            super().handle(records, term)


class CountedBySelf(KafkaCareer):
    """Counts the records by the career's own figures."""

    def execute(self, term: Term) -> None:
        before = self._running().handler.context.figures.records
        super().execute(term)
        self.handled = self._running().handler.context.figures.records - before


class Calling(CountedBySelf, Reading):  # type: ignore[misc]
    """Calls a service for each record; on many threads."""

    order = "key"
    workers = CALLS_AT_ONCE

    def handle(self, records: Sequence[Record], term: Term) -> None:
        self.watch.batch_came()
        time.sleep(len(records) * CALL_S)


class Awaiting(CountedBySelf, AsyncKafkaLeaderCareer):  # type: ignore[misc]
    """As :class:`Calling`, with coroutines."""

    auto_offset_reset = "earliest"
    order = "key"
    concurrency = CALLS_AT_ONCE
    watch: Stopwatch
    handled = 0

    async def handle_record(self, record: Record, term: AsyncTerm) -> None:
        self.watch.batch_came()
        await asyncio.sleep(CALL_S)


@contextmanager
def leading(career: Any, job: Job, session: Session) -> Iterator[OpenTerm]:
    """``career``, prepared already, leads for a term; then it is retired."""
    term = OpenTerm(
        number=1,
        id=job.name,
        career=job.name,
        candidate="candidate",
        deadline=now_s() + 3600,
        write=lambda _term, operations: session.multi(operations),
    )
    try:
        career._begin(term)
        yield term
    finally:
        term.wind_up(Reason.STEP_DOWN)
        career._finish(term)
        term.close()
        career._perform(career.retire)
        career._close()


def prepared(kind: type[Reading], job: Job, session: Session, **declared: Any) -> Any:
    """A career that may begin to lead; its watch expects as many records as the job has."""
    career: Any = type("Drained", (kind,), {"out": job.out, **declared})()
    career.settings = Settings(kafka=job.address, career=job.name)
    career.session, career.events, career.candidate_id = session, EventBus(), "candidate"
    career.watch = Stopwatch(job.count)
    session.ensure_path(f"/leaderq/{job.name}")  # as the election does
    career._perform(career.prepare)
    return career


def drain(career: Any, term: Term) -> float:
    """Records a second, from the first batch handed out to the last one saved."""
    with collecting_seldom():
        while career.watch.is_running:
            career.handled = 0
            career.execute(term)  # returns when the batch is saved
            if career.handled:
                career.watch.batch_done(career.handled)
    return career.watch.rate


def drained(job: Job, session: Session, *, kind: type[Reading] = Reading, **declared: Any) -> float:
    """Records a second of a career, from its first batch handed out to its last one saved."""
    career = prepared(kind, job, session, topics=job.topic, max_records=job.batch, **declared)
    with leading(career, job, session) as term:
        return drain(career, term)
