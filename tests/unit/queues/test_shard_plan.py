"""Which shards are put into, which go, and when there is one more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.errors import ConfigurationError
from leaderq.queues.sharding import QueueSharderPolicies, ShardState, plan_shards
from leaderq.queues.wire.znodes import beside, is_shard, new_shard_name

POLICIES = QueueSharderPolicies(
    new_queue_threshold=100, max_queues=3, rotate_at=1000, retire_grace_s=5.0
)
shards = st.lists(
    st.builds(
        ShardState,
        name=st.text(min_size=1),
        items=st.integers(0, 200),
        next_sequence=st.integers(0, 1100),
        is_marked=st.booleans(),
        empty_for_s=st.floats(0, 10),
        was_full=st.booleans(),
    ),
    unique_by=lambda shard: shard.name,
)


@pytest.mark.parametrize(
    "wrong",
    [
        {"new_queue_threshold": 0},
        {"threshold_check_s": 0},
        {"threshold_check_s": float("inf")},
        {"max_queues": 0},
        {"rotate_at": 0},
        {"rotate_at": 2**31},
        {"retire_grace_s": -1},
    ],
)
def test_policies_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        QueueSharderPolicies(**wrong)


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
    judgement = plan_shards([ShardState("a", 1, next_sequence=1000)], POLICIES)
    assert judgement.retired == judgement.to_mark == judgement.choice == ("a",)
    assert judgement.needs_one_more
    assert judgement.to_remove == ()
    assert (
        plan_shards([ShardState("a", 1, next_sequence=1000, is_marked=True)], POLICIES).to_mark
        == ()
    )


@pytest.mark.parametrize(
    ("items", "empty_for_s", "what", "removed"),
    [
        (0, 4.9, {"is_marked": True}, ()),
        (0, 5.0, {"is_marked": True}, ("a",)),
        (1, 9.0, {"is_marked": True}, ()),
        (0, 9.0, {"next_sequence": 1000}, ()),
    ],
)
def test_a_retired_shard_is_removed_when_it_was_empty_for_long_enough(
    items, empty_for_s, what, removed
):
    shard = ShardState("a", items, empty_for_s=empty_for_s, **what)
    assert plan_shards([shard], POLICIES).to_remove == removed


@given(shards)
def test_whatever_is_seen_every_shard_is_in_one_class_and_something_is_put_into(seen):
    judgement = plan_shards(seen, POLICIES)
    assert sorted(judgement.fit + judgement.full + judgement.retired) == sorted(
        shard.name for shard in seen
    )
    assert bool(judgement.choice) == bool(seen)
    assert not (judgement.needs_one_more and judgement.is_at_most)
    assert not (judgement.needs_one_more and judgement.fit)
    assert set(judgement.to_mark) | set(judgement.to_remove) <= set(judgement.retired)


def test_shards_are_named_as_curators():
    assert is_shard(new_shard_name())
    assert is_shard("queue-6f1b1a0e-9a51-4d7a-8e36-0123456789ab")
    assert not any(
        map(
            is_shard,
            [
                "queue-0000000001",
                "queue-",
                "foreign",
                new_shard_name() + "-meta",
                "x" + new_shard_name(),
            ],
        )
    )


def test_side_data_of_a_shard_is_beside_the_root_and_not_in_it():
    name = new_shard_name()
    assert beside(f"/jobs/{name}") == f"/jobs-side/{name}"
    assert beside(beside(f"/jobs/{name}")) == f"/jobs-side/{name}"
    assert beside("/jobs") == "/jobs"
    assert beside("/jobs/emails") == "/jobs/emails"
    assert beside(f"/{name}") == f"/{name}"
