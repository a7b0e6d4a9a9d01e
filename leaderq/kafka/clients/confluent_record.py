"""confluent-kafka's messages seen as records, made only while somebody looks at them.

A ``Message`` can neither be given another class nor made by us, so each needs a :class:`Record`
beside it. That costs 0.15 us if C code alone makes it, and it is thrown away before the next is
made, so that the garbage collector never sees it; kept in a list it costs ten times as much. So
:class:`MessageRecords` makes its records again each time somebody iterates over it. Offset, key and
value, which most handlers read, are taken out at once; the other fields are read from the message
when somebody asks for them.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator, Sequence
from itertools import groupby, repeat
from operator import methodcaller
from typing import TYPE_CHECKING, Any

from confluent_kafka import Message

from leaderq.errors import KafkaError
from leaderq.kafka.record import ListLike, Partition, Record

_UNREADABLE: Any = []
# Not called as a method: Python does not look whether an error is set beside what a method returns
# once it has specialised the call (3.11 and later), and uses a list that has holes (B42).
_headers_of = methodcaller("headers")
_Fields = namedtuple("_Fields", ("offset", "key", "value", "message"))


class ConfluentRecord(Record):
    """A record that holds offset, key and value, and reads its other fields from the message."""

    __slots__ = ()

    if not TYPE_CHECKING:
        offset, key, value, _message = _Fields.offset, _Fields.key, _Fields.value, _Fields.message

        @property
        def topic(self) -> str:
            return self._message.topic()

        @property
        def partition(self) -> int:
            return self._message.partition()

        @property
        def timestamp_ms(self) -> int:
            kind, at_ms = self._message.timestamp()
            return at_ms if kind else -1

        @property
        def leader_epoch(self) -> int | None:
            return self._message.leader_epoch()

        @property
        def headers(self) -> Sequence[tuple[str, bytes]]:
            message = self._message
            try:
                found = _headers_of(message)
            except (UnicodeDecodeError, SystemError):
                message.set_headers(found := _UNREADABLE)  # a second look would crash (B42)
            if found is _UNREADABLE:
                what = "a header has a name that is not UTF-8, and confluent-kafka reads none then"
                raise KafkaError(f"{self.place}: {what}")
            return found or []  # as kafka-python: records compare them


class MessageRecords(ListLike[Record]):
    """The records of one partition, in order. Each iteration makes new, equal records."""

    __slots__ = ("_messages",)

    def __init__(self, messages: list[Any]) -> None:
        self._messages = messages

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Record]:
        rows = self._messages
        columns = map(Message.offset, rows), map(Message.key, rows), map(Message.value, rows), rows
        fields = zip(*columns)  # noqa: B905
        return map(tuple.__new__, repeat(ConfluentRecord), fields)

    @property
    def size(self) -> int:
        """Bytes of all keys and values."""
        rows = self._messages
        return sum(map(len, rows)) + sum(map(len, filter(None, map(Message.key, rows))))

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return MessageRecords(self._messages[index])
        row = self._messages[index]
        return tuple.__new__(ConfluentRecord, (row.offset(), row.key(), row.value(), row))


def by_partition(messages: list[Any]) -> dict[Partition, Sequence[Record]]:
    """Messages without errors, by partition."""
    found: dict[Partition, list[Any]] = {}
    number_of: Any = Message.partition
    topic_of: Any = Message.topic
    for number, run in groupby(messages, number_of):
        for topic, rows in groupby(run, topic_of):
            found.setdefault(Partition(topic, number), []).extend(rows)
    return {where: MessageRecords(rows) for where, rows in found.items()}


def has_errors(messages: list[Any]) -> bool:
    """Whether some of ``messages`` are not records, but errors or news of a partition."""
    return any(map(Message.error, messages))
