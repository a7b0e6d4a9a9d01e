"""What is claimed ahead, what goes before it, and how many items are read at a time; pure."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.queues.consumers import QueueOptions
from leaderq.queues.consuming.items import Claim
from leaderq.queues.consuming.prefetch import Prefetch
from leaderq.queues.wire.names import QueueKind, prefix_for, sort_key
from leaderq.zookeeper.reading import READ_BYTES, ReadSizes


def claims(priority: int, count: int, data: bytes = b"") -> list[Claim]:
    prefix = prefix_for(QueueKind.PRIORITY, priority=priority)
    names = [f"{prefix}{number:010d}" for number in range(count)]
    return [Claim(name, data, 0, 0, membership=None) for name in names]  # type: ignore[arg-type]


def ready(**options: int) -> Prefetch:
    return Prefetch(sort_key(QueueKind.PRIORITY), lambda: True, lambda: None, **options)


@pytest.mark.parametrize("slack", [0, 3])
def test_so_many_are_handed_out_before_a_newcomer_that_is_more_urgent(slack: int) -> None:
    one, (urgent,) = ready(slack=slack), claims(1, 1)
    one.put(claims(10, 8))
    for _ in range(2):  # after each newcomer
        one.has_come(urgent.name)
        assert sum(len(one.take(1, 0)) for _ in range(6)) == slack
        one.put([urgent])
        one.refreshed(one.came, None)
        assert one.take(1, 0) == [urgent]
        one.refreshed(one.came, None)


@pytest.mark.parametrize(
    ("work_s", "workers", "ahead"),
    [(0.060, 1, 0), (0.049, 1, 1), (0.005, 1, 10), (0.005, 4, 40), (0.0001, 1, 100)],
)
def test_what_the_workers_do_in_50_ms_is_claimed_ahead_and_at_most_100_values(
    at: list[float], work_s: float, workers: int, ahead: int
) -> None:
    one = ready(most_ahead=QueueOptions[bytes]().claim_ahead, workers=workers)
    one.put(claims(0, 10))
    one.take(1, 0)
    for _ in range(9):
        at[0] += work_s
        assert len(one.take(1, 0)) == 1
    assert one.appetite() == ahead


def test_the_work_on_a_znode_of_many_values_is_measured_by_the_value(at: list[float]) -> None:
    one, (large, small) = ready(), claims(0, 2)
    large.count = 10
    one.put([large, small])
    one.take(1, 0)
    at[0] += 0.09
    one.take(1, 0)
    assert one.appetite() == 5  # of 9 ms each


def grown(size: int = 100) -> ReadSizes:
    """What is known after many items of this size."""
    random.seed(0)
    sizes = ReadSizes()
    for _ in range(50):
        sizes.learned([size] * sizes.most)
    return sizes


def read(sizes: ReadSizes, items: list[int]) -> None:
    """All of these sizes; what is read at a time is not too large, unless it is only one."""
    while items:
        first = items[: sizes.most]
        known = [first[at] for at in sizes.to_measure(len(first))]
        if known and len(known) < len(first) and sizes.is_unsure(known):
            known = first
        found = first[: sizes.fitting(len(first), known)] if known else first
        sizes.learned(found)
        assert sum(found) <= READ_BYTES or len(found) == 1
        del items[: len(found)]


def test_reads_begin_small_and_grow_while_items_are_small() -> None:
    sizes = ReadSizes()
    assert sizes.most == 16
    assert grown().most == 250
    assert grown(16_000).most == READ_BYTES // 16_080


@given(st.integers(0, 300), st.integers(16, 250), st.integers(0, 2**32))
def test_a_run_of_large_items_is_never_read_together_wherever_it_begins(small, large, seed):
    sizes = grown()
    sizes._chance = random.Random(seed)
    read(sizes, [100] * small + [1_000_000] * large + [100] * 50)


@given(st.lists(st.sampled_from([10, 20_000, 300_000, 1_000_000]), max_size=60))
def test_while_sizes_are_unknown_no_mixture_exceeds_a_megabyte(items: list[int]) -> None:
    read(ReadSizes(), items)
