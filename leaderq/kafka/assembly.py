"""Puts the parts of one Kafka career together: consumer, offset store, drain thread, handling. The
one place that builds them.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING

from leaderq.career import career_name
from leaderq.election.layout import Layout
from leaderq.kafka.career_desk import CareerDesk
from leaderq.kafka.clients.address import bootstrap_servers
from leaderq.kafka.clients.consumer import DrainFactory, DrainSettings
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonDrain
from leaderq.kafka.clients.kafka_python_producer import KafkaPythonProducer
from leaderq.kafka.clients.producer import ProducerSettings, TransactionalProducer
from leaderq.kafka.consuming.consumer_thread import Pump
from leaderq.kafka.consuming.read_ahead import Shape
from leaderq.kafka.consuming.report import Reporting
from leaderq.kafka.consuming.term_consumer import Plan
from leaderq.kafka.declaration import check, deserializer_of, topics_of
from leaderq.kafka.handling.attempts import AttemptMarks
from leaderq.kafka.handling.delivery import delivery_of
from leaderq.kafka.handling.desk import Shape as HandlingShape
from leaderq.kafka.handling.handling import Handling
from leaderq.kafka.handling.on_error import Bury, OnError, dead_topic, policy
from leaderq.kafka.handling.rates import pace_of
from leaderq.kafka.stores.offset_store import ExternalOffsets, KafkaOffsets, OffsetStore
from leaderq.kafka.stores.transaction_offsets import TransactionOffsets
from leaderq.kafka.stores.zookeeper_offsets import ZooKeeperOffsets
from leaderq.kafka.topics import ensure_topic
from leaderq.term import Term

if TYPE_CHECKING:
    from leaderq.kafka.career import KafkaLeaderCareer

log = logging.getLogger(__name__)

OPEN_MARGIN_S = 20.0
"""How much longer than for the first answer to wait for topics, metadata and coordinator."""


class Assembly:
    """What serves one career, through all its terms; for the career thread."""

    def __init__(
        self, store: OffsetStore, pump: Pump, handling: Handling, desk: CareerDesk, marks: AttemptMarks | None
    ) -> None:
        self.store = store
        self.pump = pump
        self.handling = handling
        self._desk = desk
        self._marks = marks
        self._marked: str | None = None

    def begin(self, term: Term, wait_s: float) -> None:
        """Take over for ``term``: fence the former leader, load the offsets."""
        if isinstance(self.store, ExternalOffsets):
            self.store.begin(term)
        self.pump.begin(term, wait_s)

    def begin_marks(self, term: Term) -> None:
        """Judge, once a term, what the marks of former leaders say about the offsets at which this
        one began.
        """
        if self._marks is not None and self._marked != term.id:
            self._marks.begin(term, self.pump.loaded or {})
            self._marked = term.id

    def close(self) -> None:
        """Close connections and threads."""
        self.pump.close()
        self.handling.close()
        self._desk.close()
        self.store.close()


def assembled(career: KafkaLeaderCareer, former: Assembly | None) -> Assembly:
    """The parts for ``career``, connected to Kafka; in the place of ``former``, whose drain thread
    has ended or hangs.

    Raises :class:`~leaderq.errors.ConfigurationError`, ``MissingPiece``, ``UnknownTopic``,
    ``AccessRefused`` or ``ServersUnreachable``.
    """
    name = career.settings.career or career_name(career)
    check(career, name)
    bootstrap_servers(career.settings.kafka)
    drain_class = _drain_class(career.client)
    if former is not None:
        former.close()
    where = type(career).__qualname__
    on_error = policy(career.on_error, where)
    layout = Layout(career.settings.root, name)
    store = _store(career, name, layout)
    dead_letters = _dead_letters(on_error, name)
    if dead_letters is not None:
        _require_letter_box(career, dead_letters)
    reporting = Reporting(career, name, layout, dead_letters)
    pump = Pump(_plan(career, name, store, reporting, drain_class))
    pump.start(career.settings.connect_timeout_s + OPEN_MARGIN_S)
    desk = CareerDesk(
        career,
        pump,
        store,
        key=deserializer_of(career, "key_deserializer"),
        value=deserializer_of(career, "value_deserializer"),
    )
    marks = AttemptMarks(career.session, layout.attempts, max_records=career.max_records) if on_error.deaths else None
    handling = Handling(
        desk,
        HandlingShape(workers=career.workers, batches=career.batches),
        on_error,
        delivery_of(career.delivery, career.offsets, where),
        career=name,
        marks=marks,
        pace=pace_of(career.max_records_per_s, career.max_bytes_per_s, career.key_interval_s, where),
        on_skipped=reporting.skipped,
        on_buried=reporting.buried,
    )
    return Assembly(store, pump, handling, desk, marks)


def _dead_letters(on_error: OnError, name: str) -> str | None:
    return (on_error.terminal.topic or dead_topic(name)) if isinstance(on_error.terminal, Bury) else None


def _require_letter_box(career: KafkaLeaderCareer, topic: str) -> None:
    """A dead-letter topic is made when the career is, so that poison does not meet a missing one at
    night.
    """
    settings = career.settings
    if ensure_topic(settings.kafka, topic, security=settings.kafka_security, timeout_s=settings.connect_timeout_s):
        log.info("the dead-letter topic %r was created, with the cluster's default partitions and replication", topic)


def _plan(career: KafkaLeaderCareer, name: str, store: OffsetStore, reporting: Reporting, drain_class: DrainFactory) -> Plan:
    return Plan(
        address=career.settings.kafka,
        make=partial(drain_class, career._drain_settings(name, store.in_group)),
        store=store,
        events=career.events,
        career=name,
        candidate=career.candidate_id,
        shape=Shape(max_records=career.max_records, max_bytes=career.max_bytes, max_wait_s=career.max_wait_s),
        start=career.auto_offset_reset,
        limits=career._stall_limits,
        reporting=reporting,
        gc_threshold=career.gc_threshold,
    )


def _drain_class(client: str) -> DrainFactory:
    if client == "kafka-python":
        return KafkaPythonDrain
    from leaderq.kafka.clients.confluent_connection import require  # an extra, loaded only where it is asked for

    require()
    from leaderq.kafka.clients.confluent_consumer import ConfluentDrain

    return ConfluentDrain


def drain_settings(career: KafkaLeaderCareer, name: str, in_group: bool) -> DrainSettings:
    """As whom, and what, the consumer of ``career`` reads."""
    return DrainSettings(
        address=career.settings.kafka,
        topics=topics_of(career),
        group=career.group or name,
        member=name,
        membership=in_group,
        client_id=f"leaderq-{name}-{career.candidate_id}",
        security=career.settings.kafka_security,
        open_timeout_s=career.settings.connect_timeout_s,
    )


def _store(career: KafkaLeaderCareer, name: str, layout: Layout) -> OffsetStore:
    if career.offsets == "zookeeper":
        return ZooKeeperOffsets(career.session, layout.offsets)
    if career.offsets == "external":
        return ExternalOffsets(career.load_offsets, type(career).__qualname__)
    if career.offsets == "transaction":
        return TransactionOffsets(partial(_producer, career, name))
    return KafkaOffsets()


def _producer(career: KafkaLeaderCareer, name: str) -> TransactionalProducer:
    settings = ProducerSettings(
        address=career.settings.kafka,
        transactional_id=f"leaderq-{name}",
        client_id=f"leaderq-{name}-{career.candidate_id}",
        security=career.settings.kafka_security,
        open_timeout_s=career.settings.connect_timeout_s,
    )
    if career.client == "kafka-python":
        return KafkaPythonProducer(settings)
    from leaderq.kafka.clients.confluent_producer import ConfluentProducer

    return ConfluentProducer(settings)
