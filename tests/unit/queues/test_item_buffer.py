"""What a taker of a simple queue knows, and which item it goes for."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from leaderq.queues.simple.buffer import PATIENCE, WIDEST, ItemBuffer, ReadItem


def names(*numbers: int) -> list[str]:
    return [f"qn-{number:010d}" for number in numbers]


def held(name: str, size: int = 1) -> ReadItem:
    return ReadItem(name, b"x" * size, 0)


def filled(count: int, seed: int = 0) -> ItemBuffer:
    stock = ItemBuffer(random.Random(seed))
    stock.listed(names(*range(count)))
    read(stock)
    return stock


def read(stock: ItemBuffer, wanted: int = 1, size: int = 1) -> list[str]:
    asked = stock.next_unread(wanted)
    stock.learned(asked, [held(name, size) for name in asked])
    return asked


def drained(stock: ItemBuffer) -> list[str]:
    got = []
    while len(stock):
        for one in stock.pick(1):
            stock.taken(one)
            got.append(one.name)
        if not stock.pick(0):
            read(stock)
    return got


def test_a_lone_taker_takes_the_head_always():
    stock = filled(1000)
    assert drained(stock) == names(*range(1000))


def test_foreign_children_and_what_is_claimed_are_not_listed():
    stock = filled(3)
    (mine,) = stock.pick(1)
    stock.listed(["foreign", "queue-0000000001", *names(2, 1, 0)])
    assert len(stock) == 2
    assert stock.first() == names(1)[0]
    stock.taken(mine)


def test_items_found_gone_are_left_out():
    stock = ItemBuffer()
    stock.listed(names(0, 1, 2))
    asked = stock.next_unread(1)
    stock.learned(asked, [None, held(asked[1]), None])
    assert len(stock) == 1
    assert stock.first() == names(1)[0]


def picked_one(stock: ItemBuffer) -> ReadItem:
    while not (picked := stock.pick(1)):
        read(stock)
    return picked[0]


def test_who_finds_an_item_gone_gives_way_and_reads_again():
    stock = filled(300)
    stock.missed(picked_one(stock))
    assert stock.spread == 2
    assert stock.pick(1) == []
    assert stock.first() == names(1)[0]
    assert stock.next_unread(1)[0] in names(1, 2)


def test_the_spread_has_a_limit_and_goes_back_to_the_head_while_nobody_is_in_the_way():
    stock = filled(3000)
    for _ in range(20):
        stock.missed(picked_one(stock))
    assert stock.spread == WIDEST
    for _ in range(500):
        stock.taken(picked_one(stock))
    assert stock.spread == 1
    for _ in range(200):  # the block in hand, and then
        stock.taken(picked_one(stock))
    head = stock.first()
    assert picked_one(stock).name == head


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 1000))
def test_the_head_is_not_passed_over_for_ever_and_nothing_far_behind_it_is_taken(seed):
    stock = ItemBuffer(random.Random(seed))
    stock.listed(names(*range(4000)))
    passed = 0
    while len(stock) > WIDEST + 100:
        stock.spread = float(WIDEST)
        head = stock.first()
        block = stock.next_unread(1)
        assert block[0] < names(4000 - len(stock) + WIDEST)[0]  # so many were taken; then the spread
        passed = 0 if block[0] == head else passed + 1
        assert passed <= PATIENCE
        stock.learned(block, [held(name) for name in block])
        while one := stock.pick(1):
            stock.taken(one[0])


def test_takers_in_each_others_way_soon_work_on_blocks_of_their_own():
    """Eight takers take turns; each knows only the list, and what it finds gone."""
    there = set(names(*range(8000)))
    takers = [ItemBuffer(random.Random(seed)) for seed in range(8)]
    for stock in takers:
        stock.listed(there)
    misses = 0
    got: list[str] = []
    while there and any(map(len, takers)):
        for stock in takers:
            picked = stock.pick(1)
            if not picked:
                asked = stock.next_unread(1)
                stock.learned(asked, [held(name) if name in there else None for name in asked])
                continue
            if picked[0].name in there:
                there.discard(picked[0].name)
                got.append(picked[0].name)
                stock.taken(picked[0])
            else:
                misses += 1
                stock.missed(picked[0])
    assert sorted(got) == names(*range(8000))
    assert misses < 800


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["pick", "taken", "missed", "back", "changed", "read", "list"]), max_size=60),
    st.integers(0, 9999),
)
def test_whatever_happens_no_item_is_handed_out_twice_or_forgotten(steps, seed):
    stock = filled(150, seed)
    there = set(names(*range(150)))
    out: list[ReadItem] = []
    for step in steps:
        if step == "pick":
            picked = stock.pick(3)
            assert not {one.name for one in picked} & {one.name for one in out}
            out += picked
        elif step == "read":
            asked = stock.next_unread(1)
            stock.learned(asked, [held(name) if name in there else None for name in asked])
        elif step == "list":
            stock.listed(there)
        elif out:
            one = out.pop(0)
            if step in ("taken", "missed"):
                there.discard(one.name)
                getattr(stock, step)(one)
            else:
                stock.give_back(one, is_changed=step == "changed")
    for one in out:
        there.discard(one.name)
        stock.taken(one)
    got = []
    while len(stock):
        asked = stock.next_unread(1)
        stock.learned(asked, [held(name) if name in there else None for name in asked])
        for one in stock.pick(5):
            stock.taken(one)
            got.append(one.name)
    assert sorted(got) == sorted(there)


def test_large_items_are_read_few_at_a_time_and_small_ones_many():
    stock = ItemBuffer()
    stock.listed(names(*range(1000)))
    assert len(read(stock, size=200_000)) <= 16
    assert len(stock.next_unread(1)) == 1
    stock = ItemBuffer()
    stock.listed(names(*range(1000)))
    read(stock)
    assert len(stock.next_unread(1)) == 100
    assert len(stock.next_unread(500)) == 500


def test_what_was_read_while_much_changed_is_read_again():
    stock = filled(200)
    asked = stock.next_unread(1)
    (one,) = stock.pick(1)
    stock.missed(one)
    stock.learned(asked, [held(name) for name in asked])
    assert stock.pick(1) == []
    assert stock.first() == names(1)[0]
