"""Shards, what a queue holds, and the pieces of putting and taking that need no server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.errors import ConfigurationError
from leaderq.queues import BlockingQueueConsumer
from leaderq.queues.admin.contents import agreed, contents_of
from leaderq.queues.admin.queue_admin import restored_data
from leaderq.queues.consumers import QueueOptions
from leaderq.queues.putting import WARN_FROM, Putter
from leaderq.queues.sharding import RETIRED_FROM, QueueSharderPolicies, ShardState, plan_shards
from leaderq.queues.wire.names import LAST_SEQUENCE, QueueKind, next_number
from leaderq.queues.wire.payload import Note, compressed, encode
from leaderq.queues.wire.znodes import QueuePaths, beside, is_shard, new_shard_name
from leaderq.testing import eventually

SHARD = "queue-00000000-0000-4000-8000-000000000000"
POLICIES = QueueSharderPolicies(new_queue_threshold=100, max_queues=3, threshold_check_s=2.5)
shards = st.lists(
    st.builds(
        ShardState,
        name=st.text(min_size=1),
        items=st.integers(0, 200),
        next_sequence=st.integers(RETIRED_FROM - 1000, RETIRED_FROM + 100),
        was_full=st.booleans(),
    ),
    unique_by=lambda shard: shard.name,
)


@pytest.mark.parametrize("name", ["new_queue_threshold", "threshold_check_s", "max_queues"])
def test_policies_that_make_no_sense_are_refused(name):
    with pytest.raises(ConfigurationError, match=name):
        QueueSharderPolicies(**{name: 0})


def test_a_shard_is_full_from_the_threshold_on_until_it_is_down_to_the_half():
    assert plan_shards([ShardState("a", 99)], POLICIES).fit == ("a",)
    assert plan_shards([ShardState("a", 100)], POLICIES).full == ("a",)
    assert plan_shards([ShardState("a", 51, was_full=True)], POLICIES).full == ("a",)
    assert plan_shards([ShardState("a", 50, was_full=True)], POLICIES).fit == ("a",)


def test_one_more_is_needed_when_all_are_full_and_not_before():
    assert not plan_shards([ShardState("a", 500), ShardState("b", 1)], POLICIES).needs_one_more
    judgement = plan_shards([ShardState("a", 500), ShardState("b", 100)], POLICIES)
    assert judgement.needs_one_more
    assert judgement.choice == ("a", "b")


def test_a_shard_that_has_numbered_too_many_is_retired_and_replaced():
    assert RETIRED_FROM < LAST_SEQUENCE
    assert plan_shards([ShardState("a", 1, RETIRED_FROM - 1)], POLICIES).fit == ("a",)
    judgement = plan_shards([ShardState("a", 1, next_sequence=RETIRED_FROM)], POLICIES)
    assert judgement.retired == judgement.choice == ("a",)
    assert judgement.needs_one_more


@given(shards)
def test_whatever_is_seen_every_shard_is_in_one_class_and_something_is_put_into(seen):
    judgement = plan_shards(seen, POLICIES)
    names = sorted(shard.name for shard in seen)
    assert sorted(judgement.fit + judgement.full + judgement.retired) == names
    assert bool(judgement.choice) == bool(seen)
    assert not (judgement.needs_one_more and judgement.fit)


def test_shards_are_named_as_curators():
    assert is_shard(new_shard_name())
    assert is_shard("queue-6f1b1a0e-9a51-4d7a-8e36-0123456789ab")
    for other in ("queue-0000000001", "foreign", SHARD + "-meta", "x" + SHARD):
        assert not is_shard(other)


def test_side_data_of_a_shard_is_beside_the_root_and_not_in_it():
    name = new_shard_name()
    assert beside(f"/jobs/{name}") == f"/jobs-side/{name}"
    assert beside(beside(f"/jobs/{name}")) == f"/jobs-side/{name}"
    assert beside("/jobs") == "/jobs"
    assert beside("/jobs/emails") == "/jobs/emails"
    assert beside(f"/{name}") == f"/{name}"


def test_items_foreign_ones_and_shards_are_told_apart_and_items_are_in_their_order():
    items = ["queue-0000000010", "queue-|00000001|0000000009", "queue-|7FFFFFFFF|0000000003"]
    seen = contents_of([*reversed(items), "x", SHARD])
    assert (seen.kind, seen.items) == (QueueKind.DELAY, items)
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
        (QueueKind.ID, QueueKind.PLAIN, "of a plain queue, and id was given"),
        (QueueKind.PLAIN, QueueKind.PRIORITY, "of a priority queue, and plain was given"),
        (QueueKind.SIMPLE, QueueKind.PLAIN, "of a plain queue, and simple was given"),
    ],
)
def test_the_kind_to_put_is_the_one_told_where_what_lies_there_could_be_of_it(told, found, gives):
    if isinstance(gives, str):
        with pytest.raises(ConfigurationError, match=f"/q are those {gives}"):
            agreed(told, found, "/q")
    else:
        assert agreed(told, found, "/q") is gives


@given(created=st.integers(0, 2**31 - 1), children=st.integers(0, 2_000_000))
def test_the_next_number_is_found_however_often_the_servers_counter_has_run_over(created, children):
    children = min(children, created)
    reported = (2 * created - children + 2**31) % 2**32 - 2**31
    assert next_number(reported, children) == created


@pytest.mark.parametrize(
    ("data", "back"),
    [
        (encode([b"a"], Note(attempt=3, enqueued_ms=7)), encode([b"a"], Note(enqueued_ms=7))),
        (encode([b"\0junk"], Note(raw=True)), b"\0junk"),
        (encode([b"a"]), encode([b"a"])),
        (b"no letter", b"no letter"),
        (compressed(encode([b"a"], Note(attempt=1))), compressed(encode([b"a"]))),
        (compressed(encode([compressed(b"odd")], Note(raw=True))), compressed(b"odd")),
    ],
)
def test_a_letter_goes_back_as_what_it_was_without_what_was_noted_of_its_death(data, back):
    assert restored_data("queue-0000000001", data) == back


@pytest.mark.parametrize(
    "number, warns", [(0, False), (1, False), (WARN_FROM - 1, False), (WARN_FROM, True), (-5, True)]
)
def test_numbers_near_their_end_are_warned_of_once(caplog: Any, number: int, warns: bool):
    session: Any = SimpleNamespace(chroot="", max_request_bytes=1 << 20)
    putter = Putter(session, QueuePaths("/q"), QueueOptions[bytes]())
    for _ in range(3):
        stored = putter.made([b"x"], "queue-", None, is_multi=False)
        stored.results = [f"/q/queue-{number:010}"]
        putter._in_flight.take(1, stored.size)
        putter._settled([stored], None)
    assert caplog.text.count("item numbers run out soon") == warns


def test_a_full_blocking_consumer_waits_and_refuses_nothing():
    consumer: BlockingQueueConsumer[str] = BlockingQueueConsumer(capacity=1)
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(consumer.consume, value) for value in "ab"]
        eventually(lambda: consumer.size() == 1)
        drained: list[str] = []
        while len(drained) < 2:
            consumer.drain_to(drained)
        assert sorted(drained) == ["a", "b"]
        consumer.task_done()
        consumer.task_done()
        assert [future.result(60) for future in futures] == [None, None]
    with pytest.raises(ConfigurationError):
        BlockingQueueConsumer(capacity=0)
