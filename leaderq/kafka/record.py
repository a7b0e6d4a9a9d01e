"""What a handler is given: records, and the batch that is committed as a whole.

These types are ours, not a client library's, so that a handler runs unchanged behind another client, and can be tested with
records made by hand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


class Partition(NamedTuple):
    """One partition of a topic. Equal to any ``(topic, number)`` pair, so it indexes a client's own mappings too."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.number}"


class Record(NamedTuple):
    """One record of a topic; immutable.

    ``key`` and ``value`` are ``bytes`` (or ``None`` where the producer sent none) unless the career declares a deserialiser;
    ``timestamp_ms`` is milliseconds since the epoch, as the producer or the broker set it (-1: unknown); ``headers`` are
    pairs of name and bytes.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: Sequence[tuple[str, bytes]] = ()


@dataclass(frozen=True)
class Batch:
    """Records handed out together and committed together.

    ``records`` are in order within each partition; ``ends`` is, for each partition of the batch, the offset after its last
    record: what is committed once all of them are handled.
    """

    records: Mapping[Partition, list[Record]]
    ends: Mapping[Partition, int]

    def merged(self) -> list[Record]:
        """All records in one list: partition by partition, each in order."""
        lists = list(self.records.values())
        return lists[0] if len(lists) == 1 else [record for records in lists for record in records]


def batch_of(records: Mapping[Partition, list[Record]]) -> Batch:
    """The batch made of what one poll gave."""
    return Batch(records=records, ends={partition: rows[-1].offset + 1 for partition, rows in records.items()})


Deserializer = Callable[[bytes], Any]


def deserialized(records: Iterable[Record], key: Deserializer | None, value: Deserializer | None) -> list[Record]:
    """The same records with keys and values decoded; ``None`` (no key, a tombstone) is left as it is."""
    return [
        record._replace(
            key=key(record.key) if key is not None and record.key is not None else record.key,
            value=value(record.value) if value is not None and record.value is not None else record.value,
        )
        for record in records
    ]
