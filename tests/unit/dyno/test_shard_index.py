"""What a consumer would deliver next, against a model and news by news; and who keeps leases."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.dyno import index as module
from leaderq.dyno.index import Choice, ShardIndex
from leaderq.dyno.layout import NO_GROUP, group_of, name_prefix, parsed_name, rest_name


def named(priority: int, due_ms: int, sequence: int, group: str | None = None) -> str:
    return f"{name_prefix(priority, due_ms, group_of(group))}{sequence:010}"


def index_of(*names: str, ageing_s: float | None = None) -> ShardIndex:
    made = ShardIndex(ageing_s)
    for name in names:
        made.created(name)
    return made


@dataclass
class Known:
    """One message of the model. ``until_ms`` and ``version`` of its rest, if it rests."""

    name: str
    until_ms: int | None = None
    version: int = 0
    leased: bool = False
    ours: bool = False
    over: int | None = None
    was_due: bool = False


class NaiveShard:
    """The rule, said once more without heaps."""

    def __init__(self) -> None:
        self.messages: dict[str, Known] = {}

    def due_ms(self, one: Known) -> int:
        return parsed_name(one.name).due_ms if one.until_ms is None else one.until_ms

    def free(self, now_ms: int) -> list[str]:
        """All that may be delivered, in their order."""
        heads: dict[str, int] = {}
        best: dict[str, int] = {}
        for one in self.messages.values():
            parsed = parsed_name(one.name)
            heads[parsed.group] = min(heads.get(parsed.group, parsed.sequence), parsed.sequence)
            one.was_due = one.was_due or self.due_ms(one) <= now_ms
            if one.was_due and parsed.group != NO_GROUP:
                best[parsed.group] = min(best.get(parsed.group, parsed.priority), parsed.priority)
        found = []
        for one in self.messages.values():
            parsed = parsed_name(one.name)
            is_head = parsed.group == NO_GROUP or heads[parsed.group] == parsed.sequence
            is_taken = one.ours or (one.leased and one.over is None)
            if is_head and not is_taken and self.due_ms(one) <= now_ms:
                priority = min(parsed.priority, best.get(parsed.group, parsed.priority))
                found.append((priority, parsed.sequence, one.name))
        return [name for _, _, name in sorted(found)]


KINDS = ["create", "create", "delete", "choose", "back", "lost"]
KINDS += ["rest", "wake", "claims", "over", "clock", "list"]
STEPS = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 30), st.integers(0, 5)), max_size=60
)


@given(STEPS)
def test_the_index_chooses_what_a_look_at_everything_would_choose(steps):
    follow(steps)


@pytest.mark.parametrize("seed", range(30))
def test_the_index_chooses_so_over_long_times_too(seed: int) -> None:
    draw = random.Random(seed)
    kinds = [*KINDS, "create", "clock", "choose"]
    follow([(draw.choice(kinds), draw.randrange(31), draw.randrange(6)) for _ in range(150)])


def follow(steps: list[tuple[str, int, int]]) -> None:  # noqa: C901 - a table of events
    index, model, now_ms, sequence = ShardIndex(), NaiveShard(), 1000, 0
    known = model.messages.values()
    for now_s, (what, at, amount) in enumerate(steps):
        names = sorted(model.messages)
        name = names[at % len(names)] if names else ""
        one = model.messages.get(name)
        if what == "create":
            sequence += 1
            group = None if at % 3 else f"group {amount % 2}"
            new = named(amount, now_ms + 100 * (at % 4), sequence, group)
            model.messages[new] = Known(new)
            for _ in range(2):  # it may be told of more than once
                index.created(new)
        elif what == "clock":
            now_ms += 50 * (amount - 1)  # it may be set back, too
        elif what == "list":
            resting = [one for one in known if one.until_ms is not None]
            rests = [rest_name(one.until_ms, one.version, one.name) for one in resting]
            index.replace(names, rests, now_ms)
            for each in known:
                each.was_due = False
        elif what == "claims":
            claimed = [one for one in known if one.leased or one.ours or one.until_ms is not None]
            index.claims_listed([one.name for one in claimed], now_s)
            looked_at = sorted(one.name for one in known if one.leased)
            assert sorted(index.to_look_at(0.0, everything=True)) == looked_at
        elif what == "choose":
            free, skip = model.free(now_ms), at % 3
            left = min(skip, max(0, len(free[: skip + amount]) - 1))  # of all, one is taken
            expected = free[left : left + amount]
            chosen = index.choose(amount, now_ms, skip=skip)
            assert [choice.name for choice in chosen] == expected
            for choice in chosen:
                found = model.messages[choice.name]
                version = found.over if found.until_ms is None else found.version
                assert choice.version == version
                assert (choice.rest is None) == (found.until_ms is None)
                found.ours = True
            assert index.upcoming(2, now_ms) == model.free(now_ms)[:2]
        elif one is None:
            continue
        elif what == "delete":
            del model.messages[name]
            for _ in range(2):
                index.deleted(name)
        elif what == "back" and one.ours:
            one.ours = False
            index.release([name])
        elif what == "lost" and one.ours:
            one.ours, one.leased, one.over, one.until_ms = False, True, None, None
            index.lost(name, now_s)
        elif what == "rest" and (one.leased or one.ours):
            one.version += 1
            one.leased, one.ours, one.over, one.until_ms = False, False, None, now_ms + 50 * amount
            index.rested(rest_name(one.until_ms, one.version, name))
        elif what == "wake" and one.until_ms is not None:
            marker, older = (rest_name(one.until_ms, one.version - by, name) for by in (0, 1))
            for late in (marker, older):  # changes nothing, also while the message is ours
                index.rested(late)
            for over in (older, marker):
                index.rest_over(over, now_s)
            one.until_ms, one.leased = None, not one.ours
        elif what == "over" and one.leased:
            one.over = amount
            assert index.observed(name, amount, 0.0, now_s)
        due = model.free(now_ms)
        assert len(index.due_times_ms(now_ms)) == len(due)
        assert (index.next_due_ms(now_ms) == now_ms) == bool(due)
        assert len(index) == len(model.messages)
    for name in model.messages:
        index.deleted(name)
    assert index.to_look_at(0.0, everything=True) == []
    index.claims_listed(model.messages, len(steps))
    assert index.next_due_ms(now_ms + 10_000) is None
    assert index.to_look_at(0.0, everything=True) == []
    kept = index._rests, index.in_hand, index._groups, index._waiting
    assert not any(kept), "what is without messages costs memory"


def test_with_ageing_what_has_waited_for_long_goes_before_what_is_better_and_new() -> None:
    old, new, newer = named(1, 0, 1), named(0, 9_000, 2), named(0, 11_000, 3)
    index = index_of(old, new, newer, ageing_s=10)
    assert [choice.name for choice in index.choose(3, 20_000)] == [new, old, newer]


def test_with_ageing_a_group_is_as_urgent_as_the_most_urgent_of_it_that_waits() -> None:
    head, urgent, alone = named(1, 0, 1, "g"), named(0, 0, 2, "g"), named(0, 5_000, 3)
    index = index_of(head, urgent, alone, ageing_s=10)
    assert index.next_due_ms(6_000) == 6_000
    assert index.order_of(head) < index.order_of(alone)
    index.rested(rest_name(20_000, 1, urgent))
    assert [choice.name for choice in index.choose(3, 6_000)] == [alone, head]


def leased(*seen: tuple[int, float, float]) -> list[bool]:
    """Whether a lease that was listed at 100 s is over, as read: version, duration, time."""
    index = index_of(NAME)
    index.claims_listed([NAME], 100.0)
    return [index.observed(NAME, *one) for one in seen]


def test_a_lease_lasts_from_when_its_version_was_first_seen() -> None:
    assert module.SLOWER == 25 / 24
    assert leased((0, 24.0, 101.0), (0, 24.0, 124.9), (0, 24.0, 125.0)) == [False, False, True]
    assert leased((3, 24.0, 101.0), (3, 24.0, 125.9), (3, 24.0, 126.0)) == [False, False, True]
    assert leased((0, 24.0, 101.0), (1, 24.0, 125.0), (1, 24.0, 149.9)) == [False, False, False]
    assert leased((0, 0.0, 100.0)) == [True], "the session of its consumer is over"


def test_a_lease_is_looked_at_when_it_should_be_over_and_now_and_then_before() -> None:
    index = index_of(NAME)
    index.claims_listed([NAME], 100.0)
    looks_s = {0.96: 111.0, 1.2: 101.25, 2.0: 102.0, 8.0: 103.0, 48.0: 111.0}
    for lease_s, look_s in looks_s.items():
        index.observed(NAME, 0, lease_s, 101.0)
        assert index.next_look_s() == look_s


def test_an_own_lease_that_was_extended_lasts_for_so_long_again() -> None:
    index = index_of(NAME)
    assert free(index)
    index.claimed(NAME, 4, 100.0, 24.0)
    index.extended(NAME, 6, 110.0, 24.0)  # not the next one: another's
    assert index.next_look_s() == 125.0
    index.extended(NAME, 5, 110.0, 24.0)
    assert index.next_look_s() == 135.0
    assert [index.observed(NAME, 5, 24.0, at_s) for at_s in (134.9, 135.0)] == [False, True]


def test_a_lease_after_a_rest_lasts_from_the_end_of_the_rest() -> None:
    index = index_of(NAME)
    index.rested(SOON)
    index.rest_over(SOON, 100.0)
    assert [index.observed(NAME, 2, 24.0, at_s) for at_s in (124.9, 125.0)] == [False, True]


NAME = named(0, 0, 1)
SOON, LATER = rest_name(100, 1, NAME), rest_name(500, 2, NAME)


def free(index: ShardIndex, now_ms: int = 10_000) -> list[Choice]:
    return index.choose(99, now_ms)


def test_a_lease_that_is_just_known_is_left_alone_for_a_second() -> None:
    assert module.SETTLING_S == 1.0
    index = index_of(NAME)
    index.claims_listed([NAME], 5.0)
    assert (index.to_look_at(5.9), index.to_look_at(6.0)) == ([], [NAME])
    assert not index.observed(NAME, 0, 12.0, 6.0)
    index.claims_listed([NAME], 7.0)
    assert (index.to_look_at(8.9), index.to_look_at(9.0)) == ([], [NAME])
    assert index.to_look_at(0, everything=True) == [NAME]


def test_a_claim_that_is_missing_for_a_second_was_taken_away_by_hand() -> None:
    index = index_of(NAME)
    index.claims_listed([NAME], 5.0)
    index.claims_listed([], 5.9)
    assert free(index) == []
    index.claims_listed([], 6.0)
    assert free(index) == [Choice(NAME)]


def test_a_claim_that_failed_is_looked_at_after_a_second() -> None:
    other = named(0, 0, 2)
    index = index_of(NAME, other)
    assert free(index) == [Choice(NAME), Choice(other)]
    index.lost(NAME, 3.0)
    index.lost(other, 3.5)
    assert (index.to_look_at(3.9), index.to_look_at(4.0)) == ([], [NAME])
    assert (index.next_look_s(), index_of(NAME).next_look_s()) == (4.0, math.inf)


def test_news_of_what_is_not_a_message_are_ignored() -> None:
    index = index_of(NAME)
    for news in (index.created, index.deleted, index.rested):
        news("x")
    index.rest_over("x", 0.0)
    assert not index.observed("x", 1, 0.0, 0.0)
    index.claims_listed(["x", named(0, 0, 9)], 0)
    index.observed(named(0, 0, 9), 1, 0.0, 0.0)
    index.extended("x", 1, 0.0, 5.0)
    index.release(["x"])
    assert (len(index), index.to_look_at(0, everything=True)) == (1, [])
    assert free(index) == [Choice(NAME)]


def test_a_marker_may_come_before_its_message() -> None:
    index = ShardIndex()
    index.rested(LATER)
    index.rest_over(rest_name(100, 1, NAME), 0.0)
    index.created(NAME)
    assert (free(index, 499), index.next_due_ms(0)) == ([], 500)
    assert free(index, 500) == [Choice(NAME, 2, LATER)]
    stranger = ShardIndex()
    stranger.rested(LATER)
    stranger.rest_over(LATER, 0.0)
    assert stranger.to_look_at(0, everything=True) == []


def test_a_rest_that_is_over_is_leased_until_somebody_looks() -> None:
    index = index_of(NAME)
    index.claims_listed([NAME], 0)
    index.observed(NAME, 1, 0.0, 0.0)
    index.rested(LATER)
    assert index.to_look_at(0, everything=True) == []
    index.rest_over(LATER, 0.0)
    assert (free(index), index.to_look_at(0)) == ([], [NAME])
    index.observed(NAME, 3, 0.0, 0.0)
    assert free(index) == [Choice(NAME, 3)]
    index.release([NAME])
    index.rested(rest_name(100, 3, NAME))
    index.rest_over(rest_name(100, 3, NAME), 0.0)
    index.claims_listed([], module.SETTLING_S)  # deleted by hand
    assert free(index) == [Choice(NAME)]


def test_a_new_listing_decides_what_there_is() -> None:
    other, kept, new = named(0, 0, 2), named(0, 0, 3), named(0, 700, 4)
    index = index_of(NAME, other, kept)
    index.claims_listed([NAME, other, kept], 0)
    index.replace([NAME, kept, new, "x"], [LATER, "x", rest_name(5, 1, named(0, 0, 9))], 600)
    assert len(index) == 3
    assert index.to_look_at(0, everything=True) == [kept]
    assert free(index, 699) == [Choice(NAME, 2, LATER)]
    assert [one.name for one in free(index, 700)] == [new]
    index.replace([NAME, new], [LATER], 500)
    assert [one.name for one in free(index, 499)] == []
    worst_first = [named(priority, 0, priority) for priority in (3, 2, 1)]
    index.replace(worst_first, [], 0)
    assert [one.name for one in index.choose(1, 0)] == [worst_first[-1]]


def test_the_next_due_time_is_that_of_a_rest_once_it_rests() -> None:
    index = index_of(named(0, 100, 1))
    assert [index.next_due_ms(now_ms) for now_ms in (50, 100, 150)] == [100, 100, 150]
    late = index_of(named(0, 400, 1))
    late.rested(rest_name(900, 1, named(0, 400, 1)))
    assert late.next_due_ms(50) == 900
    assert ShardIndex().next_due_ms(0) is None


def test_a_priority_is_worth_so_many_seconds_and_of_equals_the_first_goes_first() -> None:
    for first, second in ((named(1, 0, 1), named(0, 1000, 2)), (named(0, 1000, 1), named(1, 0, 2))):
        index = index_of(second, first, ageing_s=1.0)
        assert [choice.name for choice in free(index)] == [first, second]


def test_what_is_held_has_a_claim_and_does_not_rest() -> None:
    choices = Choice("n"), Choice("n", 0), Choice("n", 0, "r")
    assert [one.is_held for one in choices] == [False, True, False]


def test_those_asked_for_are_chosen_if_they_are_free() -> None:
    names = [named(0, due_ms, at) for at, due_ms in enumerate((0, 0, 500))]
    index = index_of(*names)
    assert index.choose_these([names[1], names[2], "x"], 100) == [Choice(names[1])]
    assert index.choose_these([names[1]], 100) == []
    assert index.choose(9, 100) == [Choice(names[0])]
