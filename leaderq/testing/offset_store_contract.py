"""Tests that every :class:`~leaderq.kafka.OffsetStore` must pass. Inherit
:class:`OffsetStoreContract` in your tests, and give it your store.

.. code-block:: python

    class TestMyOffsets(OffsetStoreContract):
        def make_store(self) -> MyOffsets:
            return MyOffsets(ADDRESS)

        def add(self, store: MyOffsets, name: str) -> None:
            store.count("contract", name)

        def effects(self) -> list[str]:
            return [name for name, times in read("contract").items() for _ in range(times)]

Each test has a career of its own. The numbers of terms are 9 and 10, so that a store that compares
them as text is found out. *Not tried:* restarts and replicas of your server, and lost answers. Test
these where you can make them happen.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any
from unittest import SkipTest
from uuid import uuid4

from leaderq.errors import ConfigurationError, Deposed, KafkaFenced
from leaderq.kafka import DeliveryPromise, OffsetStore, Partition, StoreContext
from leaderq.kafka.record import Offset, epoch_of
from leaderq.kafka.stores import STORES
from leaderq.kafka.stores.handle_call import HandleCall
from leaderq.term import Term
from leaderq.testing.kit import FakeTerm

A, B = Partition("orders", 0), Partition("orders", 1)
_LONG_S = 10.0
_REFUSED = KafkaFenced, Deposed


class GroupOfOne:
    """The consumer that these tests give to a store: it has all partitions, and its group is always
    free.
    """

    def existing(self) -> Collection[Partition]:
        return [A, B]

    def join(self, allowed: Any, timeout_s: float) -> bool:
        allowed()
        return True


class StoreLeader:
    """One leader with its store, in one term."""

    def __init__(self, store: OffsetStore, term: Term) -> None:
        self.store, self.term = store, term
        self._consumer: Any = GroupOfOne()

    def begin(self) -> Mapping[Partition, int]:
        """Fence off all other leaders, and return the offsets."""
        self.store.begin(self.term)
        while not self.store.fence(self._consumer, self.term, self.term.check, _LONG_S):
            self.term.check()
        return self.store.load(self._consumer, self.term, _LONG_S)

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        self._await(self.store.commit(self._consumer, self.term, offsets))

    def commit_positions(self, offsets: Mapping[Partition, int]) -> None:
        self._await(self.store.commit_positions(self._consumer, self.term, offsets))

    def _await(self, committing: Any) -> None:
        while not committing.done(_LONG_S):
            self.term.check()


class OffsetStoreContract:
    """Inherit this class; pytest runs its tests. For a store that keeps only offsets, leave
    :meth:`add` and :meth:`effects` out: the tests of effects are skipped.
    """

    @abstractmethod
    def make_store(self) -> OffsetStore:
        """Return a new store; each one is connected to the same server."""
        raise NotImplementedError

    def add(self, store: Any, name: str) -> None:
        """Add an effect called ``name`` to the present batch; called within ``handle``."""
        raise NotImplementedError

    def effects(self) -> list[str]:
        """The effects that stand, in any order, each as often as it happened."""
        raise NotImplementedError

    def make_term(self, number: int, career: str) -> Term:
        """A term that lasts."""
        return FakeTerm(number=number, career=career, unclean=False, lasts_s=3600.0)

    # ---- what the tests use ----------------------------------------------------------------------

    def leader(self, number: int = 9, career: str = "", store: OffsetStore | None = None) -> Any:
        """A leader of the test's career that has not begun yet."""
        made = self.make_store() if store is None else store
        name = career or self._career
        made.attach(StoreContext(career=name, root="/contract"))
        self._made.append(made)
        return StoreLeader(made, self.make_term(number, name))

    def add_in_handle(self, store: OffsetStore, *names: str) -> None:
        with HandleCall() as effects:
            for name in names:
                self.add(store, f"{self._career}-{name}")
        for effect in effects:
            effect()

    def standing(self) -> list[str]:
        """The effects of this test that stand, sorted."""
        mark = f"{self._career}-"
        return sorted(each.removeprefix(mark) for each in self.effects() if each.startswith(mark))

    @property
    def has_effects(self) -> bool:
        return type(self).add is not OffsetStoreContract.add

    def require_effects(self) -> None:
        if not self.has_effects:
            raise SkipTest("the store keeps offsets only: there is no add() in this test")

    def setup_method(self) -> None:
        self._career = f"contract-{uuid4().hex[:8]}"
        self._made: list[OffsetStore] = []

    def teardown_method(self) -> None:
        for store in self._made:
            store.close()

    # ---- the contract ----------------------------------------------------------------------------

    def test_it_says_what_it_is(self) -> None:
        store = self.make_store()
        assert isinstance(store.word, str)
        assert store.word not in STORES
        assert store.promises
        assert all(isinstance(each, DeliveryPromise) for each in store.promises)
        if DeliveryPromise.EXACTLY_ONCE in store.promises:
            assert store.undoes or store.handle_stores

    def test_at_first_it_has_no_offsets(self) -> None:
        assert self.leader().begin() == {}

    def test_offsets_and_their_epochs_are_there_for_this_leader_and_the_next(self) -> None:
        first = self.leader(9)
        first.begin()
        first.commit({A: Offset(5, 3), B: 7})
        first.commit({A: Offset(6, 4)})
        assert first.begin() == {A: 6, B: 7}
        loaded = self.leader(10).begin()
        assert loaded == {A: 6, B: 7}
        assert [epoch_of(loaded[each]) for each in (A, B)] == [4, -1]

    def test_careers_do_not_see_each_other(self) -> None:
        one = self.leader(9)
        one.begin()
        one.commit({A: 5})
        other = self.leader(9, career=f"{self._career}-other")
        assert other.begin() == {}

    def test_an_older_leader_is_refused_and_nothing_of_it_is_stored(self) -> None:
        older, newer = self.leader(9), self.leader(10)
        older.begin()
        older.commit({A: 5})
        assert newer.begin() == {A: 5}
        if self.has_effects:
            self.add_in_handle(older.store, "zombie")
        self._is_refused(lambda: older.commit({A: 9}))
        self._is_refused(lambda: older.commit_positions({B: 9}))
        newer.commit({A: 6})
        assert self.leader(11).begin() == {A: 6}
        if self.has_effects:
            assert self.standing() == []

    def test_an_older_leader_cannot_begin_after_a_newer_one(self) -> None:
        self.leader(10).begin()
        self._is_refused(self.leader(9).begin)

    def test_the_same_store_serves_the_next_term(self) -> None:
        store = self.make_store()
        first = self.leader(9, store=store)
        first.begin()
        first.commit({A: 5})
        store.close()
        store.close()
        again = self.leader(10, store=store)
        assert again.begin() == {A: 5}
        again.commit({A: 6})
        assert again.begin() == {A: 6}

    def test_effects_happen_with_their_offsets_and_once(self) -> None:
        self.require_effects()
        leader = self.leader()
        leader.begin()
        self.add_in_handle(leader.store, "a", "b")
        assert self.standing() == []
        leader.commit({A: 5})
        assert self.standing() == ["a", "b"]
        leader.commit({A: 5})  # as after an answer that was lost
        leader.commit({A: 6})
        assert self.standing() == ["a", "b"]

    def test_effects_do_not_happen_if_they_are_undone_or_the_term_ends(self) -> None:
        self.require_effects()
        leader = self.leader(9)
        leader.begin()
        self.add_in_handle(leader.store, "undone")
        leader.store.undo()
        self.add_in_handle(leader.store, "kept")
        leader.commit({A: 5})
        self.add_in_handle(leader.store, "over")
        leader.store.close()
        again = self.leader(10, store=leader.store)
        again.begin()
        again.commit({A: 6})
        assert self.standing() == ["kept"]

    def test_positions_are_stored_without_effects(self) -> None:
        self.require_effects()
        leader = self.leader()
        leader.begin()
        self.add_in_handle(leader.store, "a")
        leader.commit_positions({B: 3})
        assert self.standing() == []
        leader.commit({A: 5})
        assert self.standing() == ["a"]
        assert leader.begin() == {A: 5, B: 3}

    def test_effects_are_accepted_in_handle_only(self) -> None:
        self.require_effects()
        leader = self.leader()
        leader.begin()
        with suppress(ConfigurationError):
            self.add(leader.store, f"{self._career}-stray")
            raise AssertionError("an effect was accepted outside a call of handle")
        leader.commit({A: 5})
        assert self.standing() == []

    def test_effects_of_a_call_that_failed_are_told_apart(self) -> None:
        self.require_effects()
        leader = self.leader()
        leader.begin()
        with HandleCall():  # one that fails, beside one that returns
            self.add(leader.store, f"{self._career}-failed")
        self.add_in_handle(leader.store, "a")
        leader.commit({A: 5})
        assert self.standing() == ["a"]

    def test_a_unit_test_can_take_the_effects_of_a_batch(self) -> None:
        self.require_effects()
        leader = self.leader()
        self.add_in_handle(leader.store, "a", "b")
        assert len(leader.store.take_effects()) == 2
        assert leader.store.take_effects() == []

    @staticmethod
    def _is_refused(attempt: Any) -> None:
        with suppress(*_REFUSED):
            attempt()
            raise AssertionError("an older term was let through")
