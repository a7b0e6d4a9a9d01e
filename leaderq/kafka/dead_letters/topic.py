"""Reads a dead-letter topic from a place to its end as it is now, without joining any group.

Records of transactions still open are waited for by nobody: the end is the last stable offset.
Errors: :class:`~leaderq.errors.ServersUnreachable`, ``AccessRefused``, ``UnknownTopic``,
``KafkaError``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any

from kafka import KafkaConsumer, TopicPartition

from leaderq.clock import now_s
from leaderq.config import KafkaSecurity
from leaderq.errors import KafkaError, UnknownTopic
from leaderq.kafka.clients.consumer import KafkaAway
from leaderq.kafka.clients.kafka_python_connection import connected, connection_options, quiet_client_logs, speaking_leaderq
from leaderq.kafka.record import Record

_POLL_MS = 200
_SILENCE_S = 30.0


class LetterBox:
    """The letters on ``topic``, for a ``with`` block. ``ends`` are those at its begin; ``group`` is
    whose progress is asked for.
    """

    def __init__(
        self, address: str, topic: str, *, group: str, security: KafkaSecurity | None = None, timeout_s: float = 10.0
    ) -> None:
        self.topic = topic
        self._address = address
        self._timeout_s = timeout_s
        self._options = {
            **connection_options(address, security or KafkaSecurity(), open_timeout_s=timeout_s),
            "group_id": group,
            "enable_auto_commit": False,
            "isolation_level": "read_committed",  # also lets committed offsets wait for a transaction that is being settled
            "auto_offset_reset": "none",
            "allow_auto_create_topics": False,
            "metrics_enabled": False,
        }
        self._consumer: Any = None
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    def __enter__(self) -> LetterBox:
        quiet_client_logs()
        self._consumer = connected(KafkaConsumer, self._address, self._options)
        try:
            self._find_letters()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _find_letters(self) -> None:
        numbers = self.partitions_of(self.topic)
        if not numbers:
            raise UnknownTopic(
                f"no topic {self.topic!r} on Kafka {self._address!r}: no dead letter was ever written there; if the career's "
                "on_error names another topic, name it with --topic"
            )
        where = [TopicPartition(self.topic, number) for number in sorted(numbers)]
        with speaking_leaderq("asking for offsets", self._address):
            self.starts = _by_number(self._consumer.beginning_offsets(where, timeout_ms=self._timeout_s * 1000))
            self.ends = _by_number(self._consumer.end_offsets(where, timeout_ms=self._timeout_s * 1000))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._consumer.close(autocommit=False, timeout_ms=1000)

    def partitions_of(self, topic: str) -> frozenset[int]:
        """The partitions of any topic of this cluster; none if it does not exist."""
        with speaking_leaderq("asking for partitions", self._address):
            return frozenset(self._consumer.partitions_for_topic(topic) or ())

    def committed(self) -> dict[int, tuple[int, str]]:
        """The group's committed offset of each partition, and the metadata beside it; absent where none is."""
        where = [TopicPartition(self.topic, number) for number in self.starts]
        with speaking_leaderq("reading committed offsets", self._address):
            stored = self._consumer._coordinator.fetch_committed_offsets(where, timeout_ms=self._timeout_s * 1000)
        return {each.partition: (kept.offset, kept.metadata or "") for each, kept in stored.items()}

    def read(self, first: Mapping[int, int] | None = None) -> Iterator[Record]:
        """The records from ``first`` on (else from the topic's first ones) to ``ends``, in order
        within each partition.
        """
        begins = {number: max(start, (first or {}).get(number, start)) for number, start in self.starts.items()}
        open_ = {TopicPartition(self.topic, number) for number, begin in begins.items() if begin < self.ends[number]}
        with speaking_leaderq("reading", self._address):
            self._consumer.assign(sorted(open_))  # those alone: without a position the others would fail the poll
            for where in open_:
                self._consumer.seek(where, begins[where.partition])
        last_s = now_s()
        while open_:
            rows = self._polled()
            for where in sorted(rows):
                for row in rows[where]:
                    if row.offset < self.ends[where.partition]:
                        yield _record(row)
            if self._narrowed(open_) or rows:
                last_s = now_s()  # (also after the reader took its time)
            elif now_s() - last_s > _SILENCE_S:
                raise KafkaAway(f"topic {self.topic!r} on Kafka {self._address!r} gave no records for {_SILENCE_S:.0f} s")

    def one(self, number: int, offset: int) -> Record:
        """The record at ``offset`` of partition ``number``; raises
        :class:`~leaderq.errors.KafkaError` if there is none.
        """
        if number in self.ends and self.starts[number] <= offset < self.ends[number]:
            found = next((record for record in self.read({**self.ends, number: offset}) if record.offset >= offset), None)
            if found is not None and found.offset == offset:
                return found
        kept = [
            f"{at}: {self.starts[at]} to {self.ends[at] - 1}" for at in sorted(self.ends) if self.ends[at] > self.starts[at]
        ]
        raise KafkaError(
            f"no letter at offset {offset} of partition {number} of topic {self.topic!r}; "
            + (f"it holds (partition: offsets) {', '.join(kept)}" if kept else "it is empty")
        )

    def _polled(self) -> dict[TopicPartition, list[Any]]:
        with speaking_leaderq("reading", self._address):
            found: dict[TopicPartition, list[Any]] = self._consumer.poll(timeout_ms=_POLL_MS, max_records=500)
        return found

    def _narrowed(self, open_: set[TopicPartition]) -> bool:
        """Leave out the partitions read to their end; positions also pass over what is no record
        (transaction markers).
        """
        with speaking_leaderq("reading", self._address):
            done = {
                where
                for where in open_
                if (self._consumer.position(where, timeout_ms=1000) or 0) >= self.ends[where.partition]
            }
            if done:
                self._consumer.pause(*done)
        open_ -= done
        return bool(done)


def _by_number(offsets: Mapping[TopicPartition, int]) -> dict[int, int]:
    return {where.partition: offset for where, offset in offsets.items()}


def _record(row: Any) -> Record:
    return Record(row.topic, row.partition, row.offset, row.timestamp, row.key, row.value, tuple(row.headers))
