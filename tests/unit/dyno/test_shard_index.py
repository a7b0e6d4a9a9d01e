"""What a consumer would deliver next, against a model that looks at everything each time."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.dyno.index import ShardIndex
from leaderq.dyno.layout import NO_GROUP, group_of, name_prefix, parsed_name, rest_name


def named(priority: int, due_ms: int, sequence: int, group: str | None = None) -> str:
    return f"{name_prefix(priority, due_ms, group_of(group))}{sequence:010}"


@dataclass
class Known:
    """One message of the model. ``until_ms`` and ``version`` of its rest, if it rests."""

    name: str
    until_ms: int | None = None
    version: int = 0
    leased: bool = False
    ours: bool = False
    over: int | None = None


class NaiveShard:
    """The rule, said once more without heaps."""

    def __init__(self) -> None:
        self.messages: dict[str, Known] = {}

    def due_ms(self, one: Known) -> int:
        parsed = parsed_name(one.name)
        assert parsed is not None
        return parsed.due_ms if one.until_ms is None else one.until_ms

    def free(self, now_ms: int) -> list[str]:
        """All that may be delivered, in their order."""
        heads: dict[str, int] = {}
        for name in self.messages:
            parsed = parsed_name(name)
            assert parsed is not None
            heads[parsed.group] = min(heads.get(parsed.group, parsed.sequence), parsed.sequence)
        found = []
        for one in self.messages.values():
            parsed = parsed_name(one.name)
            assert parsed is not None
            is_head = parsed.group == NO_GROUP or heads[parsed.group] == parsed.sequence
            is_taken = one.ours or (one.leased and one.over is None)
            if is_head and not is_taken and self.due_ms(one) <= now_ms:
                found.append((parsed.priority, parsed.sequence, one.name))
        return [name for _, _, name in sorted(found)]


KINDS = ["create", "create", "delete", "choose", "back", "lost"]
KINDS += ["rest", "wake", "claims", "over", "clock", "list"]
STEPS = st.lists(
    st.tuples(
        st.sampled_from(KINDS),
        st.integers(0, 30),
        st.integers(0, 5),
    ),
    max_size=60,
)


@given(STEPS)
def test_the_index_chooses_what_a_look_at_everything_would_choose(
    steps: list[tuple[str, int, int]],
) -> None:
    follow(steps)


@pytest.mark.parametrize("seed", range(30))
def test_the_index_chooses_so_over_long_times_too(seed: int) -> None:
    draw = random.Random(seed)
    kinds = [*KINDS, "create", "clock", "choose"]
    follow([(draw.choice(kinds), draw.randrange(31), draw.randrange(6)) for _ in range(150)])


def follow(steps: list[tuple[str, int, int]]) -> None:  # noqa: C901 - a table of events
    index, model, now_ms, sequence = ShardIndex(), NaiveShard(), 1000, 0
    for what, at, amount in steps:
        names = sorted(model.messages)
        name = names[at % len(names)] if names else ""
        one = model.messages.get(name)
        if what == "create":
            sequence += 1
            group = None if at % 3 else f"group {amount % 2}"
            new = named(amount, now_ms + 100 * (at % 4), sequence, group)
            model.messages[new] = Known(new)
            index.created(new)
        elif what == "clock":
            now_ms += 50 * (amount - 1)  # it may be set back, too
        elif what == "list":
            rests = [
                rest_name(one.until_ms, one.version, one.name)
                for one in model.messages.values()
                if one.until_ms is not None
            ]
            index.replace(names, rests, now_ms)
        elif what == "claims":
            claimed = [
                one.name
                for one in model.messages.values()
                if one.leased or one.ours or one.until_ms is not None
            ]
            index.claims_listed(claimed, now_ms)
            assert sorted(index.to_look_at(now_ms, everything=True)) == sorted(
                one.name for one in model.messages.values() if one.leased and not one.ours
            )
        elif what == "choose":
            expected = model.free(now_ms)[:amount]
            chosen = index.choose(amount, now_ms)
            assert [choice.name for choice in chosen] == expected
            for choice in chosen:
                found = model.messages[choice.name]
                assert choice.version == (
                    found.version if found.until_ms is not None else found.over
                )
                assert (choice.rest is None) == (found.until_ms is None)
                found.ours = True
            assert index.upcoming(2, now_ms) == model.free(now_ms)[:2]
        elif one is None:
            continue
        elif what == "delete":
            del model.messages[name]
            index.deleted(name)
        elif what == "back" and one.ours and not one.leased:
            one.ours = False
            index.release([name])
        elif what == "lost" and one.ours:
            one.ours, one.leased, one.over, one.until_ms = False, True, None, None
            index.lost(name, now_ms)
        elif what == "rest" and (one.leased or one.ours):
            one.version += 1
            one.leased, one.ours, one.over, one.until_ms = False, False, None, now_ms + 50 * amount
            index.rested(rest_name(one.until_ms, one.version, name))
        elif what == "wake" and one.until_ms is not None and not one.ours:
            index.rest_over(rest_name(one.until_ms, one.version, name))
            one.until_ms, one.leased = None, True
        elif what == "over" and one.leased:
            one.over = amount
            index.lease_over(name, amount)
        due = model.free(now_ms)
        assert len(index.due_times_ms(now_ms)) == len(due)
        assert (index.next_due_ms(now_ms) == now_ms) == bool(due)


def test_with_ageing_what_has_waited_for_long_goes_before_what_is_better_and_new() -> None:
    index = ShardIndex(ageing_s=10)
    old, new = named(1, 0, 1), named(0, 9_000, 2)
    newer = named(0, 11_000, 3)
    for name in (old, new, newer):
        index.created(name)
    assert [choice.name for choice in index.choose(3, 20_000)] == [new, old, newer]


def test_what_was_known_of_one_lease_does_not_put_off_the_look_at_the_next() -> None:
    index, name = ShardIndex(), named(0, 0, 1)
    index.created(name)
    assert index.choose(1, 0)
    index.claimed(name, 0, 60_000)
    assert index.to_look_at(59_999) == []
    marker = rest_name(1_000, 1, name)
    index.rested(marker)
    index.rest_over(marker)
    assert index.to_look_at(1_000) == [name]
    index.looked_at(name, 9_000)
    assert (index.to_look_at(8_999), index.to_look_at(9_000)) == ([], [name])


def test_a_lease_that_is_over_is_offered_once_for_each_version() -> None:
    index, name = ShardIndex(), named(0, 0, 1)
    index.created(name)
    index.claims_listed([name], 0)
    for _ in range(3):
        index.lease_over(name, 7)
    assert len(index._later) == 2, "each look at a lease that nobody takes over costs memory"
    assert index.choose(2, 0) == [(name, 7, None)]
    index.lost(name, 0)
    assert index.choose(1, 0) == []
    index.lease_over(name, 8)
    assert index.choose(1, 0) == [(name, 8, None)]
