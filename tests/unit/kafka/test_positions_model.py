"""The positions of one term, as the group gives partitions away and back: compared with what one
store, shared with other members, must come to.

The model's store is atomic, as a transaction is: what is committed for a batch is committed as a
whole. Each record committed by us or by others is counted; none may be counted twice, or left out.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from leaderq.kafka.consuming.positions import Positions
from leaderq.kafka.record import Batch, Partition, Record, batch_of

PARTITIONS = [Partition("t", number) for number in range(3)]
SOME = st.sets(st.sampled_from(PARTITIONS))


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
    @rule(counts=st.dictionaries(st.sampled_from(PARTITIONS), st.integers(1, 4), min_size=1))
    def hand_out(self, counts: dict[Partition, int]) -> None:
        rows = {
            where: [
                Record(where.topic, where.number, self.positions.handed[where] + n, 0, None, b"")
                for n in range(count)
            ]
            for where, count in counts.items()
            if where in self.held
        }
        if rows:
            self.career = batch_of(rows)
            self.positions.hand(self.career)

    @precondition(lambda self: self.career is not None and not self.in_flight)
    @rule(data=st.data())
    def ask_to_commit(self, data: st.DataObject) -> None:
        """All of what is in hand, or some of its partitions."""
        if self.positions.in_hand is None:
            self.career = None  # BatchLost: its results are undone
            return
        ends = self.positions.in_hand.ends
        some = data.draw(st.sets(st.sampled_from(sorted(ends)), min_size=1))
        self.in_flight = {where: ends[where] for where in some}

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
        in_hand = self.positions.in_hand.ends if self.positions.in_hand is not None else {}
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
