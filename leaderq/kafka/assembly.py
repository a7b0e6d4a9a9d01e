"""The one place that puts a Kafka career together: store, consumer thread, handling."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from leaderq.config import Settings
from leaderq.election.layout import Layout
from leaderq.errors import LeaderqError, NoNode, UnknownTopic
from leaderq.events import EventBus
from leaderq.kafka.clients import private_api, transport
from leaderq.kafka.clients.client_options import ClientLibrary, bootstrap_servers, for_all_clients
from leaderq.kafka.clients.consumer import (
    ConsumerSettings,
    Offsets,
    TopicPattern,
)
from leaderq.kafka.clients.producer import Message, ProducerClient, ProducerSettings
from leaderq.kafka.consuming.consumer_thread import ConsumerThread
from leaderq.kafka.consuming.rate_limit import RateLimiter
from leaderq.kafka.consuming.read_ahead import BatchLimits
from leaderq.kafka.consuming.report import ProgressReports
from leaderq.kafka.consuming.term_consumer import ConsumingPlan
from leaderq.kafka.dead_letters.topic import (
    FRAME_BYTES,
    LETTER_ROOM_BYTES,
    MAX_LETTER_BYTES,
    DeadLetterSender,
)
from leaderq.kafka.declaration import Declaration, dead_letters_of
from leaderq.kafka.groups import (
    Deployment,
    describe_group,
    remove_static_members,
    rivalry,
)
from leaderq.kafka.handling.batch_handler import BatchHandler
from leaderq.kafka.handling.burials import BurialRequests
from leaderq.kafka.handling.calls import CoroutineWorkers, HandleCalls
from leaderq.kafka.handling.context import (
    DrainFigures,
    HandlingContext,
    RecordOrder,
    is_side_by_side,
)
from leaderq.kafka.handling.crash_marks import CrashMarks
from leaderq.kafka.handling.on_error import policy
from leaderq.kafka.serialization import decoder, encoder
from leaderq.kafka.stores import open_store
from leaderq.kafka.stores.offset_store import LoadOffsets, OffsetStore, StoreContext
from leaderq.kafka.topics import (
    Access,
    describe_topics,
    ensure_topic,
    existing_topics,
    offsets_at,
    stored_offsets,
)
from leaderq.observability.figures import FigureSource, offer_figures
from leaderq.term import Term
from leaderq.zookeeper import Session

log = logging.getLogger(__name__)

OPEN_MARGIN_S = 20.0
"""Seconds that topics, metadata and coordinator may take, beyond the wait for a first answer."""
ASK_GROUP_S = 5.0


@dataclass(frozen=True)
class Environment:
    """What a career declares, where it runs, and which of its functions are called."""

    declared: Declaration
    settings: Settings
    session: Session
    events: EventBus
    candidate: str
    calls: HandleCalls
    load_offsets: LoadOffsets
    coroutines: CoroutineWorkers | None = None

    @property
    def layout(self) -> Layout:
        return Layout(self.settings.root, self.declared.name)

    @property
    def access(self) -> Access:
        return access_for(self.declared, self.settings)

    @property
    def _asking(self) -> tuple[str, str, Access]:
        """Address, group and access for a question to Kafka during a term (answered within 5 s)."""
        return self.settings.kafka, self.declared.group, {**self.access, "timeout_s": ASK_GROUP_S}

    @cached_property
    def deployment(self) -> Deployment:
        return Deployment.of(self.session, self.settings.root)

    @property
    def store_context(self) -> StoreContext:
        declared = self.declared
        return StoreContext(
            career=declared.name,
            root=self.settings.root,
            where=declared.where,
            folder=self.layout.offsets,
            session=self.session,
            load_offsets=self.load_offsets,
            make_producer=lambda: self.producer(
                transactional_id(declared.name, declared.group, self.settings.root)
            ),
        )

    @property
    def letter_bytes(self) -> int:
        return max(MAX_LETTER_BYTES, self.declared.max_message_bytes)

    def producer(self, transactional: str | None = None) -> ProducerClient:
        """Return a new producer, not open yet; ``transactional``: its transactional id, if any."""
        settings = ProducerSettings(
            transactional_id=transactional,
            max_message_bytes=self.letter_bytes,
            **self.connection,
        )
        return transport.producers_of(self.declared.client)(settings)

    @property
    def connection(self) -> dict[str, Any]:
        return {
            "address": self.settings.kafka,
            "client_id": f"leaderq-{self.declared.name}-{self.candidate}",
            "mark": self.deployment.mark,
            "security": self.access["security"],
            "open_timeout_s": self.settings.connect_timeout_s,
            "options": self.declared.client_options,
        }

    def consumer_settings(self, in_group: bool) -> ConsumerSettings:
        declared = self.declared
        return ConsumerSettings(
            topics=declared.topics,
            group=declared.group,
            member=declared.name,
            membership=in_group,
            **self.connection,
        )

    # ---- what is asked of Kafka beside the draining ----------------------------------------------

    def require_outputs(self) -> None:
        address, declared = self.settings.kafka, self.declared
        there = existing_topics(address, **self.access) if declared.produces else ()
        if missing := [topic for topic in declared.produces if topic not in there]:
            raise UnknownTopic(
                f"there is no topic {', '.join(map(repr, missing))} on Kafka {address!r}, and"
                f" 'produces' of {declared.where} names it; create it (leaderq topics create"
                f" {' '.join(missing)}), or correct the name"
            )

    def require_dead_letters(self, topic: str) -> int | None:
        """Create the dead-letter topic if it is missing. Returns the largest message that it takes,
        in bytes; ``None``: not known.
        """
        address, access = self.settings.kafka, self.access
        sources = topics_of(self.declared, address, access)
        views = describe_topics(address, [topic, *sources], **access)
        sizes = {name: view.max_message_bytes for name, view in views.items()}
        largest = max(filter(None, map(sizes.get, sources)), default=None)
        wanted = None if largest is None else largest + LETTER_ROOM_BYTES
        configs = {} if wanted is None else {"max.message.bytes": str(wanted)}
        if ensure_topic(address, topic, configs=configs, **access):
            what = "dead-letter topic created topic=%s max.message.bytes=%s"
            log.info(what, topic, wanted or "default")
            return wanted
        size = sizes.get(topic)
        if size is not None and largest is not None and size < largest:
            log.warning(
                "dead-letter topic takes less than its source, so a larger record that fails stops"
                " its partition topic=%s max.message.bytes=%d command=kafka-configs --alter --topic"
                " %s --add-config max.message.bytes=%d",
                *(topic, size, topic, wanted),
            )
        return size

    def offsets_at_begin(self) -> Offsets:
        """Return, for each partition, the offset of the first record that is not older than the
        career's ``begin_at``.
        """
        address, _, access = self._asking
        assert self.declared.begin_at is not None
        topics = topics_of(self.declared, address, access)
        return offsets_at(address, topics, int(self.declared.begin_at.timestamp() * 1000), **access)

    def free_group(self) -> str:
        """Remove the members from the group that are named like careers of this root for which no
        candidate stands. Returns a sentence about the members that the group still waits for.
        """
        address, group, access = self._asking
        try:
            members = describe_group(address, group, **access).others(self.declared.name)
            others = {member.name for member in members if member.name}
            gone = sorted(name for name in others if self._is_abandoned(name))
            if gone:
                remove_static_members(address, group, gone, **access)
                what = "members without candidates removed from group group=%s members=%s"
                log.warning(what, group, ", ".join(gone))
        except LeaderqError as exc:
            return f"group={group} waits for other members, which are not known: {exc}"
        waits_for = ", ".join(sorted(others.difference(gone))) or "members without a name"
        return (
            f"group={group} waits for {waits_for}, until they join again or their sessions end; "
            "if they are gone for good, remove them from the group"
        )

    def _is_abandoned(self, name: str) -> bool:
        layout = Layout(self.settings.root, name)
        if not self.session.exists(layout.base):
            return False  # no career of ours
        try:
            return not self.session.children(layout.candidates)
        except NoNode:
            return True

    def explain_group(self) -> str:
        """Return a sentence about who keeps the career's member out of the group, or ``""``."""
        address, group, access = self._asking
        try:
            view = describe_group(address, group, **access)
            stored = stored_offsets(address, group, **access)
        except LeaderqError as exc:
            return f"who is in its group is not known: {exc}"
        if (trouble := view.trouble(self.declared.name)) is not None:
            return trouble
        rivals = self.deployment.rivals(note for _, note in stored.values())
        return rivalry(rivals) if rivals else ""


@dataclass
class Assembly:
    """The parts that serve one career, through all its terms. For the career thread."""

    declared: Declaration
    store: OffsetStore
    consumer: ConsumerThread
    handler: BatchHandler
    dead_letters: DeadLetterSender
    calls: HandleCalls

    @cached_property
    def encode(self) -> Callable[[Message], Message] | None:
        """The function that turns what ``produce`` is given into the message to send; ``None``: the
        message is sent as it is.
        """
        return encoder(self.declared.key_serializer, self.declared.value_serializer)

    def begin(self, term: Term, wait_s: float) -> None:
        self.store.begin(term)
        self.consumer.begin(term, wait_s)

    def close(self) -> None:
        self.consumer.close()
        self.handler.close()
        self.dead_letters.close()
        self.store.close()
        self.store.used_by = None


def assembled(environment: Environment, former: Assembly | None) -> Assembly:
    """Return the parts for a career, connected to Kafka. They replace ``former``, whose consumer
    thread has ended or hangs. Raises what connecting a client raises.
    """
    declared, settings, layout = environment.declared, environment.settings, environment.layout
    bootstrap_servers(settings.kafka)
    if declared.client is ClientLibrary.KAFKA_PYTHON:
        private_api.require_the_version_that_was_read()
    new_consumer = transport.consumers_of(declared.client)
    if former is not None:
        former.close()
    store = declared.offsets
    open_store(store, environment.store_context)
    environment.require_outputs()
    topic = dead_letters_of(declared.on_error, declared.name)
    topic_bytes = None if topic is None else environment.require_dead_letters(topic)
    session, who = environment.session, (declared.name, environment.candidate, declared.group)
    reports = ProgressReports(session, environment.events, layout.progress, *who, topic)
    # Side by side in order of keys, more partitions in a batch are more keys.
    sharers = declared.workers if environment.coroutines is None else 2
    if declared.order is not RecordOrder.PARTITION:
        sharers = min(sharers, 2)
    limits = declared.max_records, declared.max_bytes, declared.max_wait_s, sharers
    rates = declared.max_records_per_s, declared.max_bytes_per_s, declared.key_interval_s
    # What slides comes in parts: as soon as one is committed there is room for another.
    slides = is_side_by_side(environment.coroutines, declared.order, declared.workers)
    parts = 4 if slides else 1
    ahead = 2 if declared.commit_behind else parts
    consumer = ConsumerThread(
        ConsumingPlan(
            address=settings.kafka,
            make=partial(new_consumer, environment.consumer_settings(store.in_group)),
            store=store,
            career=declared.name,
            reports=reports,
            batch_limits=BatchLimits(*limits, ahead=ahead, parts=parts),
            rate=None if rates == (None, None, None) else RateLimiter(*rates),
            start=declared.auto_offset_reset,
            begin_at=environment.offsets_at_begin if declared.begin_at is not None else None,
            by_pattern=isinstance(declared.topics, TopicPattern),
            free_group=environment.free_group if store.in_group else None,
            explain_group=environment.explain_group,
            deployment=environment.deployment,
        )
    )
    consumer.start(settings.connect_timeout_s + OPEN_MARGIN_S)
    letter_bytes = environment.letter_bytes
    dead_letters = DeadLetterSender(
        environment.producer(),
        store.add if store.offers == "produce" else None,
        make_topic=lambda: topic and environment.require_dead_letters(topic),
        most_bytes=min(letter_bytes, (topic_bytes or sys.maxsize) - FRAME_BYTES),
    )
    figures = DrainFigures() if former is None else former.handler.context.figures
    if former is None:
        offer_figures(FigureSource.DRAIN, declared.name, figures, DrainFigures.read)

    def held_up(why: str | None) -> None:
        figures.hold_up(why is not None)
        reports.held_up(why)

    context = handling_context(
        declared,
        environment.calls,
        store,
        coroutines=environment.coroutines,
        commit=consumer.commit,
        commit_behind=partial(consumer.commit, is_behind=True) if declared.commit_behind else None,
        more=consumer.more,
        rest=consumer.rest,
        is_lost=consumer.is_lost,
        send_dead_letter=dead_letters.send,
        marks=CrashMarks(session, layout.attempts, max_records=declared.max_records),
        burials=BurialRequests(session, layout.burials),
        on_skipped=reports.skipped,
        on_dead_lettered=reports.dead_lettered,
        on_held_up=held_up,
        figures=figures,
    )
    handler = BatchHandler(context)
    return Assembly(declared, store, consumer, handler, dead_letters, environment.calls)


def handling_context(
    declared: Declaration,
    handle: HandleCalls,
    store: OffsetStore,
    **parts: Any,
) -> HandlingContext:
    key, value = declared.key_deserializer, declared.value_deserializer
    return HandlingContext(
        career=declared.name,
        handle=handle,
        noted=handle.noted,
        decode=decoder(key, value),
        undo=store.undo,
        undoes=store.undoes,
        commits_first=declared.commits_first,
        batches=declared.batches,
        workers=declared.workers,
        order=declared.order,
        on_error=policy(declared.on_error, declared.where),
        **parts,
    )


def access_for(declared: Declaration, settings: Settings) -> Access:
    """Return login and time-out for requests outside the draining, all made with kafka-python."""
    options = for_all_clients(declared.client, declared.client_options)
    security = replace(settings.kafka_security, client_options=options)
    return {"security": security, "timeout_s": settings.connect_timeout_s}


def topics_of(declared: Declaration, address: str, access: Access) -> tuple[str, ...]:
    """Return the topics that the career reads now."""
    if isinstance(declared.topics, TopicPattern):
        return declared.topics.among(existing_topics(address, **access))
    return declared.topics


def transactional_id(career: str, group: str, root: str) -> str:
    """The cluster-wide name by which producers of this career, group and root fence each other."""
    return f"leaderq-{career}:{group}:{root}"
