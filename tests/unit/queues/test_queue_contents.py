"""What names and counters say of a queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.errors import ConfigurationError
from leaderq.queues.admin.contents import agreed, contents_of
from leaderq.queues.admin.queue_admin import restored_data
from leaderq.queues.wire.names import QueueKind, next_number
from leaderq.queues.wire.payload import Note, compressed, encode

SHARD = "queue-00000000-0000-4000-8000-000000000000"


def test_items_foreign_ones_and_shards_are_told_apart_and_items_are_in_their_order():
    seen = contents_of(
        [
            "queue-|7FFFFFFFF|0000000003",
            "x",
            "queue-|00000001|0000000009",
            "queue-0000000010",
            SHARD,
        ]
    )
    assert seen.kind is QueueKind.DELAY
    assert seen.items == [
        "queue-0000000010",
        "queue-|00000001|0000000009",
        "queue-|7FFFFFFFF|0000000003",
    ]
    assert (seen.foreign, seen.shards) == (["x"], [SHARD])


@pytest.mark.parametrize(
    ("told", "found", "gives"),
    [
        (None, None, None),
        (None, QueueKind.ID, QueueKind.ID),
        (QueueKind.ID, None, QueueKind.ID),
        (QueueKind.PRIORITY, QueueKind.PLAIN, QueueKind.PRIORITY),
        (QueueKind.DELAY, QueueKind.PLAIN, QueueKind.DELAY),
        (QueueKind.ID, QueueKind.DELAY, QueueKind.ID),
    ],
)
def test_the_kind_to_put_is_the_one_told_where_what_lies_there_could_be_of_it(told, found, gives):
    assert agreed(told, found, "/q") is gives


@pytest.mark.parametrize(
    ("told", "found"),
    [
        (QueueKind.ID, QueueKind.PLAIN),
        (QueueKind.PLAIN, QueueKind.PRIORITY),
        (QueueKind.SIMPLE, QueueKind.PLAIN),
    ],
)
def test_kinds_are_not_mixed(told, found):
    with pytest.raises(
        ConfigurationError,
        match=f"/q are those of a {found.value} queue, and {told.value} was given",
    ):
        agreed(told, found, "/q")


@given(created=st.integers(0, 2**31 - 1), children=st.integers(0, 2_000_000))
def test_the_next_number_is_found_however_often_the_servers_counter_has_run_over(created, children):
    children = min(children, created)
    reported = (2 * created - children + 2**31) % 2**32 - 2**31
    assert next_number(reported, children) == created


@pytest.mark.parametrize(
    ("data", "back"),
    [
        (
            encode([b"a", b"b"], Note(attempt=3, reason="attempts", enqueued_ms=7)),
            encode([b"a", b"b"], Note(enqueued_ms=7)),
        ),
        (encode([b"a"], Note(attempt=3)), encode([b"a"])),
        (encode([b"\0junk"], Note(raw=True)), b"\0junk"),
        (encode([b"a"]), encode([b"a"])),
        (b"no letter", b"no letter"),
        (compressed(encode([b"a"], Note(attempt=1))), compressed(encode([b"a"]))),
        (compressed(encode([compressed(b"odd")], Note(raw=True))), compressed(b"odd")),
    ],
)
def test_a_letter_goes_back_as_what_it_was_without_what_was_noted_of_its_death(data, back):
    assert restored_data("queue-0000000001", data) == back
