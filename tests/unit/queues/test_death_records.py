"""Which items are suspects after deaths, and how many deaths count; pure."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from leaderq.queues.consumers import ErrorMode, QueueOptions
from leaderq.queues.consuming.claims import Claim, Membership
from leaderq.queues.consuming.members import DeathRecords
from leaderq.queues.consuming.settling import ItemOutcome
from leaderq.queues.consuming.workers import ItemWorkers
from leaderq.queues.wire.payload import encode
from leaderq.queues.wire.znodes import QueuePaths


@pytest.mark.parametrize(
    ("left", "suspects", "deaths"),
    [
        ([{"a", "b"}], set(), {}),
        ([{"a", "b"}, {"a", "c"}], {"a"}, {}),
        # what it was is known: b need not go alone
        ([{"a", "b"}, {"a", "b"}, {"a"}], set(), {"a": 3}),
        ([{"a", "b"}, {"a", "b"}, {"c"}], {"a", "b"}, {"c": 1}),
        ([{"a", "b"}, {"b", "c"}, {"b", "c"}, {"a"}], {"b", "c"}, {"a": 2}),
    ],
)
def test_what_was_held_at_two_deaths_is_a_suspect_until_it_is_known_over_what_they_died(
    left: list[set[str]], suspects: set[str], deaths: dict[str, int]
) -> None:
    records = DeathRecords(None, QueuePaths("/q"))  # type: ignore[arg-type]
    records._left = {str(number): held for number, held in enumerate(left)}
    assert {name for name in "abc" if records.is_suspect(name)} == suspects
    assert {name: count for name in "abc" if (count := records.deaths_of(name))} == deaths


def test_a_death_that_the_note_of_a_kept_item_tells_of_is_not_counted_again() -> None:
    engine = SimpleNamespace(
        options=QueueOptions(consumer=print, error_mode=ErrorMode.KEEP), path="/q"
    )
    workers = ItemWorkers("q", engine)  # type: ignore[arg-type]
    writer = SimpleNamespace(limit=1000, chroot_bytes=0)
    membership = Membership(QueuePaths("/q", "/locks"), writer, "/members/one", 1)  # type: ignore[arg-type]
    claim = Claim("queue-0000000000", encode([b"a"]), 0, 0, membership)
    claim.deaths = 1
    assert workers._failed(claim, claim.items, ValueError()).outcome is ItemOutcome.KEPT
    assert claim.failures == 2  # one death, one failure
