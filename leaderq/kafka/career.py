"""The career of a leader that drains Kafka."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Sequence
from functools import partial
from inspect import getattr_static, signature
from types import FunctionType
from typing import ClassVar, cast

from leaderq.career import LeaderCareer, career_name
from leaderq.errors import ConfigurationError
from leaderq.kafka.address import bootstrap_servers
from leaderq.kafka.beginnings import POLICIES
from leaderq.kafka.drain import DrainSettings
from leaderq.kafka.kafka_python import KafkaPythonDrain
from leaderq.kafka.offsets import KafkaOffsets
from leaderq.kafka.plan import Plan
from leaderq.kafka.pump import Pump
from leaderq.kafka.reading import Shape
from leaderq.kafka.record import Batch, Deserializer, Record
from leaderq.term import Term

IDLE_WAIT_S = 0.25
FENCE_WAIT_S = 5.0
OPEN_MARGIN_S = 20.0
"""How much longer than for the first answer to wait for topics, metadata and coordinator."""

_MEMBER_NAME = re.compile(r"^[A-Za-z0-9._-]{1,249}$")


class KafkaLeaderCareer(LeaderCareer):
    """A leader that reads all partitions of some topics, in order within each: subclass it, set ``topics``, write :meth:`handle`.

    Class attributes:
        ``topics``: a topic or several.
        ``group``: the consumer group whose offsets are used; default the career's name.
        ``offsets``: where progress is kept; ``"kafka"``: the group's committed offsets.
        ``max_records``: the most records of one batch. A batch is also what may be repeated by the next leader after a crash, and
        its commit is one round trip, so small batches read slower.
        ``key_deserializer``, ``value_deserializer``: from ``bytes`` to what :meth:`handle` shall see; default: bytes.
        ``auto_offset_reset``: where a group that never committed begins: ``"earliest"`` (default: a new group skips nothing),
        ``"latest"`` or ``"none"`` (an error). An offset that is *out of range* is always an error: nothing is skipped silently.

    Order at the begin of a term: the former leader is fenced, offsets are loaded, :meth:`inaugurate`, first :meth:`handle`. At its
    end: the batch in hand is finished and saved, :meth:`handOver`, the consumer is closed without leaving the group.

    *Guarantees:* a batch is committed only after :meth:`handle` returned for it, and by nobody but the newest leader; at the
    change of a term at most one batch is repeated, and none skipped. While Kafka is away the term goes on, and tries again. A slow
    :meth:`handle` loses no membership. A batch whose :meth:`handle` raised is not committed, and the term fails.
    *Not guaranteed:* that the former leader is fenced *before* :meth:`inaugurate` if Kafka takes longer than 5 s to do it; but no
    record is read before it is.
    """

    topics: ClassVar[str | Sequence[str]] = ()
    group: ClassVar[str | None] = None
    offsets: ClassVar[str] = "kafka"
    max_records: ClassVar[int] = 1000
    key_deserializer: ClassVar[Deserializer | None] = None
    value_deserializer: ClassVar[Deserializer | None] = None
    auto_offset_reset: ClassVar[str | None] = None

    # Of the class, so that a subclass with an __init__ of its own need not call ours.
    _pump: Pump | None = None

    @abstractmethod
    def handle(self, records: list[Record], term: Term) -> None:
        """Work on one batch; the records of each partition are in order. Return when it is done, raise if it cannot be."""

    def prepare(self) -> None:
        """Connect to Kafka, and keep the connections warm until this process leads.

        Raises :class:`~leaderq.errors.ConfigurationError`, ``UnknownTopic``, ``AccessRefused`` or ``ServersUnreachable``.
        """
        self._running_pump()

    def execute(self, term: Term) -> None:
        """Handle and commit one batch; returns after a short wait if there is none."""
        term.check()
        self._begin(term)
        pump = self._running_pump()
        batch = pump.next(term, IDLE_WAIT_S)
        # Checked again: the batch may have come while the end was being asked for. It is handed out again to whoever leads next.
        if batch is None or term.ending.is_set() or term.paused:
            return
        self.handle(self._decoded(batch), term)
        pump.save(term, batch.ends)

    def retire(self) -> None:
        """Close the connections to Kafka."""
        if self._pump is not None:
            self._pump.close()
            self._pump = None

    def _begin(self, term: Term) -> None:
        """Fence the former leader; called by the runner before ``inaugurate``, and by ``execute`` in case it was not."""
        if self._pump is not None and self._pump.is_draining(term):
            return
        self._running_pump().begin(term, FENCE_WAIT_S)

    def _finish(self, term: Term) -> None:
        """Let go of the group; called by the runner after ``handOver``, before the leadership is given back."""
        if self._pump is not None:
            self._pump.finish(term)

    def _running_pump(self) -> Pump:
        if self._pump is None or not self._pump.is_fit:
            pump = Pump(self._plan())
            pump.start(self.settings.connect_timeout_s + OPEN_MARGIN_S)
            self._pump = pump
        return self._pump

    def _decoded(self, batch: Batch) -> list[Record]:
        return batch.merged()

    def _deserializer(self, name: str) -> Deserializer | None:
        """What the class declares, also where it is a plain function: that would otherwise become a method of this object."""
        declared = vars(self).get(name, getattr_static(type(self), name))
        if isinstance(declared, staticmethod | classmethod):
            return declared.__get__(self, type(self))
        if isinstance(declared, FunctionType) and next(iter(signature(declared).parameters), "") == "self":
            return partial(declared, self)
        return cast("Deserializer | None", declared)

    def _plan(self) -> Plan:
        name = self.settings.career or career_name(self)
        settings = self._drain_settings(name)
        return Plan(
            address=settings.address,
            make=partial(KafkaPythonDrain, settings),
            store=KafkaOffsets(),
            events=self.events,
            career=name,
            candidate=self.candidate_id,
            shape=Shape(max_records=self.max_records),
            start=self.auto_offset_reset,
        )

    def _drain_settings(self, name: str) -> DrainSettings:
        topics = (self.topics,) if isinstance(self.topics, str) else tuple(self.topics)
        problems = [problem for problem in self._problems(name, topics) if problem]
        if problems:
            raise ConfigurationError(*problems)
        address = self.settings.kafka
        bootstrap_servers(address)
        return DrainSettings(
            address=address,
            topics=topics,
            group=self.group or name,
            member=name,
            client_id=f"leaderq-{name}-{self.candidate_id}",
            security=self.settings.kafka_security,
            open_timeout_s=self.settings.connect_timeout_s,
        )

    def _problems(self, name: str, topics: tuple[str, ...]) -> Sequence[str | None]:
        where = type(self).__qualname__
        return (
            None if topics and all(topics) else f"'topics' of {where} is empty; name the topics to read",
            None
            if _MEMBER_NAME.match(name)
            else (
                f"the career name {name!r} cannot be a Kafka member name; use up to 249 letters, digits, '.', '_' and '-'"
            ),
            None if self.max_records > 0 else f"max_records={self.max_records!r} of {where} must be at least 1",
            None
            if self.auto_offset_reset in POLICIES
            else (
                f"auto_offset_reset={self.auto_offset_reset!r} of {where} is not known; use 'earliest', 'latest' or 'none'"
            ),
        )
