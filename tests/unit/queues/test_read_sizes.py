"""How many items are read at a time, by what is known of their sizes; pure."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from leaderq.reading import READ_BYTES, ReadSizes


def grown(size: int = 100) -> ReadSizes:
    """What is known after many items of this size."""
    sizes = ReadSizes(random.Random(0))
    for _ in range(50):
        sizes.learned([size] * sizes.most)
    return sizes


def read(sizes: ReadSizes, items: list[int]) -> list[int]:
    """The sizes of those that are read first."""
    items = items[: sizes.most]
    known = [items[at] for at in sizes.to_measure(len(items))]
    if known and len(known) < len(items) and sizes.is_unsure(known):
        known = items
    found = items[: sizes.fitting(len(items), known)] if known else items
    sizes.learned(found)
    return found


def test_reads_begin_small_and_grow_while_items_are_small() -> None:
    sizes = ReadSizes()
    assert sizes.most == 16
    assert grown().most == 250
    assert grown(16_000).most == READ_BYTES // 16_080


def test_a_large_item_makes_the_next_reads_small_and_careful() -> None:
    sizes = grown()
    assert len(sizes.to_measure(250)) < 20
    sizes.learned([100, 900_000])
    assert sizes.most == 1
    assert sizes.to_measure(10) == list(range(10))


@given(st.integers(0, 300), st.integers(16, 250), st.integers(0, 2**32))
def test_a_run_of_large_items_is_never_read_together_wherever_it_begins(
    small: int, large: int, seed: int
) -> None:
    sizes = grown()
    sizes._chance = random.Random(seed)
    items = [100] * small + [1_000_000] * large + [100] * 50
    while items:
        found = read(sizes, items)
        assert sum(found) <= READ_BYTES or len(found) == 1
        del items[: len(found)]


@given(st.lists(st.sampled_from([10, 20_000, 300_000, 1_000_000]), max_size=60))
def test_while_sizes_are_unknown_no_mixture_exceeds_a_megabyte(items: list[int]) -> None:
    sizes = ReadSizes()
    while items:
        found = read(sizes, items)
        assert sum(found) <= READ_BYTES or len(found) == 1
        del items[: len(found)]
