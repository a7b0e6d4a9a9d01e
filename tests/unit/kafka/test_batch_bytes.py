"""A batch is bounded in bytes, too, unless a career says otherwise; sizes cost next to nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from test_declaration import Sums, dressed

from leaderq.errors import ConfigurationError
from leaderq.kafka.clients.confluent_record import Message, MessageRecords
from leaderq.kafka.consuming.read_ahead import BatchLimits, ReadAhead
from leaderq.kafka.handling.on_error import dead_letter
from leaderq.kafka.record import Partition, Record, size_of

A = Partition("t", 0)


def plain(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Sequence[Record]:
    return [
        Record("t", 0, at, 0, key, value)
        for at, (key, value) in enumerate(zip(keys, values, strict=True))
    ]


def messages(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Sequence[Record]:
    pairs = zip(keys, values, strict=True)
    return MessageRecords(
        [
            Message(topic="t", partition=0, offset=at, key=key, value=value)
            for at, (key, value) in enumerate(pairs)
        ]
    )


Make = Callable[[Sequence[bytes | None], Sequence[bytes | None]], Sequence[Record]]


@pytest.mark.parametrize("make", [plain, messages])
def test_the_size_of_records_is_that_of_their_keys_and_values(make: Make) -> None:
    rows = make([b"k", None, b"", b"key"], [b"value", b"v", None, b""])
    assert size_of(rows) == sum(row.size for row in rows) == 10
    assert size_of(make([], [])) == 0


@pytest.mark.parametrize("make", [plain, messages])
def test_by_default_a_batch_is_bounded_in_bytes(make: Make) -> None:
    declared = dressed(Sums)._declared()
    ahead = ReadAhead(BatchLimits(max_records=declared.max_records, max_bytes=declared.max_bytes))
    value = b"x" * 900_000
    ahead.add({A: make([None] * 200, [value] * 200)}, 0.0)
    sizes = []
    while (batch := ahead.take(0.0)) is not None:
        sizes.append(size_of(batch.merged()))
    assert sum(sizes) == 200 * 900_000
    assert max(sizes) <= 32_000_000


def test_how_large_a_message_may_be_is_checked_with_the_rest() -> None:
    class Wrong(Sums):
        max_message_bytes = 0
        on_error = dead_letter()

    with pytest.raises(ConfigurationError, match=r"max_message_bytes=0 of .*Wrong is out of range"):
        dressed(Wrong)._declared()
