"""Where reading begins, goes on, or is reset; and what of a batch is left."""

from __future__ import annotations

from math import inf
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from fake_career import A, B
from fake_career import records as rows
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leaderq.errors import KafkaError, OffsetOutOfRange
from leaderq.kafka.consuming.commits import OffsetCommits
from leaderq.kafka.consuming.positions import (
    Positions,
    forgotten,
    may_reset,
    recreated,
    resets,
    rest_of,
    starts,
)
from leaderq.kafka.consuming.term_consumer import TermConsumer
from leaderq.kafka.record import Batch, Partition
from leaderq.kafka.stores import STORES

C = Partition("u", 0)
FIRST, LAST = {A: 3, B: 4, C: 5}, {A: 30, B: 40, C: 50}


NO_END = (None, "latest", "none")
ENDS = ((None, 5), ("earliest", 5), ("latest", 50))
STARTS = [
    # a partition added to a topic that is read begins at its first record
    *((policy, [B], [A], None, {B: 4}) for policy in (None, "earliest", "latest", "none")),
    # a new topic begins where the policy says
    *((policy, [B, C], [A], None, {B: 4, C: at}) for policy, at in ENDS),
    *((policy, [C], [], None, {C: at}) for policy, at in ENDS),
    # or at a time, where that is said and there is a record as late, and an added one does not
    *((policy, [B, C], [A], {B: 20, C: 30}, {B: 4, C: 30}) for policy in NO_END),
    *((policy, [C], [], {C: 2}, {C: 5}) for policy in NO_END),
    *((policy, [C], [], {}, {C: 5}) for policy in NO_END),
]


@pytest.mark.parametrize(("policy", "new", "known", "found", "begins"), STARTS)
def test_where_reading_begins(policy, new, known, found, begins):
    at_a_time = None if found is None else lambda: found
    assert starts(policy, new, known, FIRST, LAST, at_a_time) == begins


def test_where_only_partitions_were_added_nobody_asks_what_is_there_at_a_time():
    ask = mock.Mock()
    assert starts("latest", [B], [A], FIRST, LAST, ask) == {B: 4}
    ask.assert_not_called()


def test_without_an_offset_and_with_none_as_the_policy_nothing_begins():
    with pytest.raises(KafkaError, match="no offset for t-1, u-0"):
        starts("none", [C, B], [], FIRST, LAST)
    assert starts("none", [], [], FIRST, LAST) == {}


def test_only_a_policy_that_names_an_end_of_the_log_lets_a_position_be_reset():
    policies = (None, "none", "earliest", "latest")
    assert [may_reset(policy) for policy in policies] == [False, False, True, True]


@pytest.mark.parametrize(
    ("position", "is_gone"), [(2, True), (3, False), (10, False), (30, False), (31, True)]
)
def test_a_position_is_gone_that_lies_before_the_log_or_past_its_end(position, is_gone):
    positions = {A: position, Partition("other", 0): 7}
    for policy, to in (("earliest", 3), ("latest", 30), (None, 3)):
        assert resets(policy, positions, (), (), FIRST, LAST) == ({A: to} if is_gone else {})


def test_a_topic_made_again_and_a_log_cut_off_reset_what_lies_within():
    positions = {A: 10, B: 10, C: 10}
    assert resets("earliest", positions, ["t"], (), FIRST, LAST) == {A: 3, B: 4}
    assert resets("latest", positions, (), [C], FIRST, LAST) == {C: 50}


def test_topics_whose_ids_changed_were_made_again():
    assert recreated({"a": "1", "b": "2", "c": "3"}, {"a": "1", "b": "9"}) == {"b"}
    assert recreated({}, {"a": "1"}) == frozenset()


def test_an_offset_that_was_reached_is_gone_only_if_it_lies_behind_the_first():
    assert forgotten({"t-0": 4}, [A, B], (), FIRST) == {A: 4}
    assert forgotten({"t-0": 3, "t-1": 0}, [A, B], (), FIRST) == {}
    assert forgotten({"t-0": 4}, [A], ["t"], FIRST) == {}
    assert forgotten({}, [A], (), {A: 0}) == {}


OFFSETS = st.integers(0, 9)


@given(
    st.dictionaries(st.sampled_from([A, B, C]), st.sets(OFFSETS, min_size=1), min_size=1),
    st.tuples(OFFSETS, OFFSETS, OFFSETS),
)
def test_the_rest_of_a_batch_is_what_lies_behind_the_committed_offsets(parts, at):
    committed = dict(zip((A, B, C), at, strict=True))
    left = {
        where: rows(where, *sorted(each for each in offsets if each >= committed[where]))
        for where, offsets in parts.items()
    }
    rest = rest_of(Batch({at: rows(at, *sorted(each)) for at, each in parts.items()}), committed)
    found = {} if rest is None else rest.records
    assert found == {where: each for where, each in left.items() if each}


def test_a_batch_of_which_nothing_is_committed_is_the_same_batch():
    whole = Batch({A: rows(A, 5, 6), B: rows(B, 8)})
    assert rest_of(whole, {A: 5, B: 8}) is rest_of(whole, {A: 4, B: 8}) is whole


@pytest.mark.parametrize(
    ("stored", "own", "moved", "handed"),
    [
        ({A: 10, B: 0}, {}, set(), {A: 15, B: 5}),  # nobody has moved the offsets
        ({A: 15, B: 0}, {A: 15}, set(), {A: 15, B: 5}),  # the answer to a commit was lost
        ({A: 3, B: 0}, {}, {A}, {A: 3, B: 0}),  # somebody has
        ({A: 10}, {A: 15, B: 5}, set(), {A: 10}),  # a partition was taken away
        ({A: 15}, {A: 15, B: 5}, set(), {A: 15}),  # after it was committed
    ],
)
def test_after_a_rejoin_a_batch_is_kept_if_all_of_it_is_held_and_nobody_has_moved_it(
    stored, own, moved, handed
):
    positions = Positions({A: 10, B: 0})
    positions.parts.append(Batch({A: rows(A, 10, 14), B: rows(B, 4)}))
    assert positions.resume(stored, set(stored), own) == moved
    is_kept = positions.in_hand is not None
    assert (is_kept, positions.is_lost) == (handed == {A: 15, B: 5}, not is_kept)
    assert positions.handed == handed
    assert is_kept or positions.committed == handed


def test_positions_of_others_are_not_taken_over_and_new_ones_are_added():
    given_ = {A: 1}
    positions = Positions(given_)
    for at, committed in ((4, 4), (3, 4)):
        positions.advance({A: at, B: 9})
        assert positions.committed == positions.handed == {A: committed}
    assert given_ == {A: 1}
    positions.settle({B: 2})
    assert positions.committed == positions.handed == {A: 4, B: 2}


def test_a_partition_that_rests_is_given_up_and_read_again_in_time():
    positions = Positions({A: 5, B: 7})
    positions.parts.append(Batch({A: rows(A, 5), B: rows(B, 7)}))
    positions.rest(A, 10.0)
    positions.rest(B, 20.0)
    assert (positions.handed, positions.in_hand) == ({A: 5, B: 7}, None)
    assert (set(positions.resting), positions.wakes_s) == ({A, B}, 10.0)
    assert not positions.wake(9.9)
    assert positions.wake(10.0)
    assert (set(positions.resting), positions.wakes_s) == ({B}, 20.0)
    assert not positions.wake(10.1)
    assert positions.wake(20.0)
    assert positions.wakes_s == inf


ANY: Any = None
CONSUMER: Any = SimpleNamespace(start_offsets=lambda _: {A: 0}, end_offsets=lambda _: {A: 3})


def consumer_of(*, in_hand: bool = True, start: str | None = "earliest") -> Any:
    positions, commits = Positions({A: 5}), OffsetCommits(ANY, ANY)
    if in_hand:
        positions.parts.append(Batch({A: rows(A, 5)}))
    commits.commit_positions_now = mock.Mock()
    doubles = {"_place": mock.Mock(), "_check": mock.Mock()}
    known = {"_plan": SimpleNamespace(start=start), "_request_s": 1.0}
    return SimpleNamespace(positions=positions, commits=commits, **doubles, **known)


@pytest.mark.parametrize(("stored", "is_committed"), [(8, True), (5, False)])
def test_a_batch_whose_fate_is_unknown_counts_as_committed_only_if_the_store_has_its_ends(
    stored, is_committed
):
    one = consumer_of()
    one.commits.request({A: 8}, in_hand=True)
    assert one.commits.lost()
    TermConsumer._resume(one, {A: stored}, frozenset({A}))
    assert (one.commits.wanted, one.commits.failure is None) == (None, is_committed)
    assert one.positions.in_hand is None
    assert one.positions.handed == {A: stored}


def test_without_lost_effects_a_batch_stays_in_hand():
    one = consumer_of()
    one.commits.request({A: 8}, in_hand=True)
    TermConsumer._resume(one, {A: 5}, frozenset({A}))
    assert one.positions.in_hand is not None
    assert one.commits.wanted == {A: 8}


def test_positions_are_not_reset_in_the_middle_of_a_batch():
    held = consumer_of()
    assert not TermConsumer._reset(held, CONSUMER, frozenset({"t"}))
    asked = consumer_of(in_hand=False)
    asked.commits.request({A: 8}, in_hand=True)
    assert not TermConsumer._reset(asked, CONSUMER, frozenset({"t"}))
    for one in (held, asked):
        one.commits.commit_positions_now.assert_not_called()
        one._check.accept.assert_not_called()


def test_a_position_past_the_end_is_reset_and_stored_before_reading_goes_on():
    one = consumer_of(in_hand=False)
    assert TermConsumer._reset(one, CONSUMER, frozenset(), reread=True)
    one.commits.commit_positions_now.assert_called_once_with(CONSUMER, {A: 0}, 2.0)
    assert (one.positions.handed, one._place.call_count) == ({A: 0}, 1)
    assert not TermConsumer._reset(one, CONSUMER, frozenset())


def test_a_topic_made_again_stops_a_career_that_has_not_said_where_to_go_on():
    one = consumer_of(in_hand=False, start="none")
    with pytest.raises(KafkaError, match="deleted and created again"):
        TermConsumer._reset(one, CONSUMER, frozenset({"t"}))


@pytest.mark.parametrize("word", STORES)
def test_where_offsets_are_gone_the_store_says_what_to_do(word):
    one = consumer_of(start=None)
    one._store = STORES[word]
    if word == "external":  # whose word is taken: there never were any
        TermConsumer._check_forgotten(one, {A: 5})
        return
    remedy = "put back the znodes" if word == "zookeeper" else "set the group's offsets"
    with pytest.raises(OffsetOutOfRange, match=f"silently: .*{remedy}.*, or set auto_offset_reset"):
        TermConsumer._check_forgotten(one, {A: 5})


PARTITIONS = [Partition("t", number) for number in range(3)]
SOME = st.sets(st.sampled_from(PARTITIONS))
COUNTS = st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 4), min_size=1)


class SharedGroup(RuleBasedStateMachine):
    """One leader, others in its group, and the store of all of them."""

    @initialize(
        stored=st.fixed_dictionaries(dict.fromkeys(PARTITIONS, st.integers(0, 9))), held=SOME
    )
    def begin(self, stored: dict[Partition, int], held: set[Partition]) -> None:
        self.stored = dict(stored)
        self.first = dict(stored)
        self.done: dict[Partition, list[int]] = {where: [] for where in PARTITIONS}
        self.held = frozenset(held)
        self.positions = Positions({where: stored[where] for where in held})
        self.in_flight: dict[Partition, int] = {}
        self.career: Batch | None = None

    @precondition(lambda self: self.positions.in_hand is None and self.career is None)
    @rule(counts=COUNTS)
    def hand_out(self, counts: dict[Partition, int]) -> None:
        if batch := self._next(counts):
            self.career = batch
            self.positions.parts.append(batch)

    @precondition(lambda self: self.positions.parts and self.career is not None)
    @rule(counts=COUNTS)
    def hand_out_beside(self, counts: dict[Partition, int]) -> None:
        """More, while what is in hand is handled, or is being committed."""
        if batch := self._next(counts):
            self.positions.parts.append(batch)
            handed = self.positions.handed
            assert self.positions.in_hand and self.positions.handed == handed

    def _next(self, counts: dict[Partition, int]) -> Batch | None:
        handed = {at: self.positions.handed[at] for at in counts if at in self.held}
        found = {at: rows(at, *range(end, end + counts[at])) for at, end in handed.items()}
        return Batch(found) if found else None

    @precondition(lambda self: self.career is not None and not self.in_flight)
    @rule(data=st.data())
    def ask_to_commit(self, data: st.DataObject) -> None:
        """All of what is in hand, or a part of some of its partitions."""
        if self.positions.in_hand is None:
            self.career = None  # BatchLost: its results are undone
            return
        batch = self.positions.in_hand
        some = data.draw(st.sets(st.sampled_from(sorted(batch.ends)), min_size=1))
        ends = {at: [row.offset + 1 for row in batch.records[at]] for at in some}
        self.in_flight = {at: data.draw(st.sampled_from(each)) for at, each in ends.items()}

    @precondition(lambda self: self.in_flight)
    @rule(is_answered=st.booleans())
    def carry_out(self, is_answered: bool) -> None:
        """The store takes it; without an answer, it is asked for again."""
        for where, end in self.in_flight.items():
            self._do(where, end)
        if is_answered:
            self._settled()

    def _do(self, where: Partition, end: int) -> None:
        self.done[where] += range(self.stored[where], end)
        self.stored[where] = max(end, self.stored[where])

    def _settled(self) -> None:
        self.positions.settle(self.in_flight)
        self.in_flight = {}
        if self.positions.in_hand is None:
            self.career = None

    @precondition(lambda self: self.positions.parts and not self.in_flight)
    @rule(some=SOME)
    def rest(self, some: set[Partition]) -> None:
        """Their records in hand are read again later."""
        in_hand, is_lost = self.positions.in_hand, self.positions.is_lost
        for where in some:
            self.positions.rest(where, 0.0)
        left = self.positions.in_hand
        found = {} if left is None else left.records
        assert found == {at: each for at, each in in_hand.records.items() if at not in some}
        assert self.positions.is_lost == is_lost

    @rule(held=SOME, others=st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 4)))
    def rebalance(self, held: set[Partition], others: dict[Partition, int]) -> None:
        """Others commit in what is theirs, before it comes back or after it went."""
        kept = self.held & held
        for where, count in others.items():
            if where not in kept:
                self._do(where, self.stored[where] + count)
        self.held = frozenset(held)
        stored = {where: self.stored[where] for where in held}
        moved = self.positions.resume(stored, self.held, self.in_flight)
        assert moved <= self.held
        if self.positions.in_hand is None:
            self.in_flight, self.career = {}, None
        elif self.in_flight and all(stored[where] == end for where, end in self.in_flight.items()):
            self._settled()

    @invariant()
    def knows_what_is_held_and_nothing_else(self) -> None:
        assert self.positions.committed.keys() == self.positions.handed.keys() == self.held

    @invariant()
    def reads_on_where_the_store_or_the_batch_in_hand_ends(self) -> None:
        batch = self.positions.in_hand or Batch({})
        for where, parts in batch.records.items():
            begin, end = self.positions.committed[where], self.positions.handed[where]
            assert [row.offset for row in parts] == list(range(begin, end))
        in_hand = batch.ends
        assert in_hand.keys() <= self.held
        for where in self.held - self.in_flight.keys():
            assert self.positions.committed[where] == self.stored[where]
            assert self.positions.handed[where] == in_hand.get(where, self.stored[where])

    @invariant()
    def counts_each_record_once(self) -> None:
        for where, offsets in self.done.items():
            assert offsets == list(range(self.first[where], self.stored[where]))


SharedGroup.TestCase.settings = settings(max_examples=150, stateful_step_count=25, deadline=None)
TestPositionsInASharedGroup = SharedGroup.TestCase


def test_what_is_handed_out_beside_a_batch_is_one_with_it():
    positions = Positions({A: 10, B: 0, C: 4})
    positions.parts.append(Batch({A: rows(A, 10, 14), B: rows(B, 0)}))
    positions.parts.append(Batch({A: rows(A, 15), C: rows(C, 4)}))
    positions.settle({A: 11, B: 1})
    assert positions.in_hand is positions.in_hand is not None  # one alone stays as it is
    offsets = {at: [row.offset for row in each] for at, each in positions.in_hand.records.items()}
    assert (offsets, positions.in_hand.ends) == ({A: [14, 15], C: [4]}, {A: 16, C: 5})
    positions.drop()
    assert (positions.in_hand, positions.is_lost) == (None, True)
    assert positions.handed == positions.committed == {A: 11, B: 1, C: 4}
