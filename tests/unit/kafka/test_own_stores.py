"""A store of the user's own: where it plugs in, and what the contract finds wrong with one."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest import SkipTest

import pytest

from leaderq.cli.doctor import check_kafka_career
from leaderq.config import Settings
from leaderq.errors import ConfigurationError, KafkaError, KafkaFenced, LeaderqError
from leaderq.kafka import (
    DeliveryPromise,
    DoneAtOnce,
    KafkaAway,
    KafkaLeaderCareer,
    OffsetStore,
    Record,
    StoreAway,
    StoreContext,
    require_handle_call,
    take_effect,
)
from leaderq.kafka.consuming.term_consumer import Outage
from leaderq.kafka.record import Partition
from leaderq.kafka.stores import open_store
from leaderq.term import Term
from leaderq.testing import OffsetStoreContract, drive, records


class MemoryOffsets(OffsetStore):
    """Right in all respects but that it forgets with its process."""

    word = "memory"
    promises = DeliveryPromise.EXACTLY_ONCE, DeliveryPromise.AT_LEAST_ONCE
    remedy = "fill it again"
    undoes = True

    def __init__(self, server: dict[str, Any]) -> None:
        self.server = server
        self.waiting: list[str] = []
        self.career = ""

    def attach(self, context: StoreContext) -> None:
        self.career = context.career

    def check(self, context: StoreContext) -> str:
        return f"in memory for {context.career}"

    @property
    def kept(self) -> Any:
        new = SimpleNamespace(term=0, offsets={}, effects=[])
        return self.server.setdefault(self.career, new)

    def count(self, name: str) -> None:
        require_handle_call("count()")
        take_effect(lambda: self.waiting.append(name))

    def take_effects(self) -> list[Any]:
        taken, self.waiting = self.waiting, []
        return taken

    def undo(self) -> None:
        self.waiting = []

    def fence(self, consumer: Any, term: Term, allowed: Any, timeout_s: float) -> bool:
        self.refuse(term.number < self.kept.term)
        self.kept.term = term.number
        return super().fence(consumer, term, allowed, timeout_s)

    def refuse(self, is_older: bool) -> None:
        if is_older:
            raise KafkaFenced("a newer leader is there")

    def load(self, consumer: Any, term: Term, timeout_s: float) -> dict[Partition, int]:
        return dict(self.kept.offsets)

    def commit(self, consumer: Any, term: Term, offsets: Any) -> DoneAtOnce:
        self.commit_positions(consumer, term, offsets)
        self.kept.effects += self.take_effects()
        return DoneAtOnce()

    def commit_positions(self, consumer: Any, term: Term, offsets: Any) -> DoneAtOnce:
        self.refuse(self.kept.term != term.number)
        self.kept.offsets.update(offsets)
        return DoneAtOnce()

    def close(self) -> None:
        self.undo()


class TestTheContract(OffsetStoreContract):
    kind: type[MemoryOffsets] = MemoryOffsets
    server: dict[str, Any]

    def setup_method(self) -> None:
        super().setup_method()
        self.server = {}

    def make_store(self) -> MemoryOffsets:
        return self.kind(self.server)

    def add(self, store: Any, name: str) -> None:
        store.count(name)

    def effects(self) -> list[str]:
        return [each for kept in self.server.values() for each in kept.effects]


def _positions_with_effects(self: Any, *asked: Any) -> DoneAtOnce:
    self.kept.effects += self.take_effects()
    return MemoryOffsets.commit_positions(self, *asked)


BROKEN: dict[str, dict[str, Any]] = {
    "compares no terms": {"refuse": lambda *_: None},
    "keeps nothing": {"commit": lambda *_: DoneAtOnce()},
    "keeps one career for all": {"attach": lambda *_: None},
    "does effects twice": {"take_effects": lambda self: [*self.waiting]},
    "undoes nothing": {"undo": lambda _: None},
    "does effects with positions": {"commit_positions": _positions_with_effects},
    "takes effects anywhere": {"count": lambda self, name: self.waiting.append(name)},
    "keeps calls together": {
        "count": lambda self, name: [require_handle_call("count()"), self.waiting.append(name)]
    },
    "promises what it cannot do": {"undoes": False},
    "has no word": {"word": "kafka"},
}


@pytest.mark.parametrize("name", BROKEN)
def test_the_contract_finds_a_store_that(name):
    tried = TestTheContract()
    tried.kind = type("Broken", (MemoryOffsets,), BROKEN[name])
    tests = [each for each in dir(OffsetStoreContract) if each.startswith("test_")]
    with pytest.raises((AssertionError, LeaderqError)):
        for each in tests:
            tried.setup_method()
            getattr(tried, each)()


def test_a_store_of_offsets_only_is_not_said_to_have_passed_the_tests_of_effects():
    kept: Any = {"make_store": TestTheContract.make_store, "kind": MemoryOffsets, "server": {}}
    tried: Any = type("OffsetsOnly", (OffsetStoreContract,), kept)()
    tried.setup_method()
    tried.test_an_older_leader_is_refused_and_nothing_of_it_is_stored()
    with pytest.raises(SkipTest):
        tried.test_effects_happen_with_their_offsets_and_once()


class Counting(KafkaLeaderCareer):
    topics = "orders"
    store: ClassVar = MemoryOffsets({})
    offsets = store

    def handle(self, records: Sequence[Record], term: Term) -> None:
        for record in records:
            self.store.count((record.value or b"").decode())


def declared(**attributes: Any) -> Any:
    career: Any = type("Counted", (Counting,), attributes)()
    career.settings = Settings()
    return career._declared()


def test_a_store_of_ones_own_is_asked_for_its_promises():
    assert declared().offsets is Counting.store
    assert not declared().commits_first
    told = "offsets='memory' can do delivery='exactly_once' or delivery='at_least_once'"
    with pytest.raises(ConfigurationError, match=told):
        declared(delivery="at_most_once")
    with pytest.raises(ConfigurationError, match=r"make one: MemoryOffsets\(\.\.\.\)"):
        declared(offsets=MemoryOffsets)


@pytest.mark.parametrize("name", ["fence", "commit", "put"])
def test_a_store_with_a_coroutine_is_refused_because_nobody_would_await_it(name):
    async def later(*_: object) -> None: ...

    own = type("Own", (MemoryOffsets,), {name: later})({})
    with pytest.raises(ConfigurationError, match=rf"Own, .* has coroutines \({name}\)"):
        declared(offsets=own)


def test_what_leaderqs_own_stores_offer_is_refused_by_name():
    def handle(self: Any, records: Sequence[Record], term: Term) -> None:
        self.produce("out", b"x")

    career = type("Producing", (Counting,), {"handle": handle})()
    driven = drive(career, records("orders", [b"7"]), may_fail=True)
    what = "produce() belongs to offsets='transaction'; this career has offsets='memory'"
    assert str(driven.error) == what


def test_a_unit_test_sees_its_effects_as_far_as_they_are_committed():
    given = records("orders", [b"7", b"8", b"9"])
    driven = drive(type("Two", (Counting,), {"max_records": 2})(), given, failing_commit=2)
    assert driven.written == ["7", "8"]
    assert Counting.store.server == {}


def test_two_careers_of_a_process_do_not_share_one():
    store = MemoryOffsets({})
    open_store(store, StoreContext("one", "/"))
    open_store(store, StoreContext("one", "/"))  # its parts are made again
    with pytest.raises(ConfigurationError, match="give each career a MemoryOffsets of its own"):
        open_store(store, StoreContext("two", "/"))
    assert store.career == "one"


def test_doctor_asks_it_and_says_what_is_wrong(monkeypatch):
    def fail(*_: object) -> str:
        raise KafkaError("no memory; buy some")

    monkeypatch.setattr("leaderq.kafka.topics.describe_topics", lambda *_, **__: {"orders": None})
    monkeypatch.setattr("leaderq.cli.doctor.judge_topic", lambda *_: None)
    career = type("Asked", (Counting,), {})()
    for told in (("ok", "in memory for asked"), ("failed", "no memory; buy some")):
        found = list(check_kafka_career(career, "asked", Settings()))
        assert found[0].detail.endswith("offsets in 'memory'")
        assert (found[-1].check, found[-1].verdict.value, found[-1].detail) == ("offsets", *told)
        monkeypatch.setattr(MemoryOffsets, "check", fail)


def test_an_outage_of_a_store_is_not_called_one_of_kafka(caplog):
    for error in (StoreAway("no answer"), KafkaAway("no answer")):
        outage = Outage()
        for now_s in (100.0, 103.0):
            outage.met(error, now_s, joining=False)
    told = [line.getMessage().partition(",")[0] for line in caplog.records]
    assert told == ["offset store is unreachable", "Kafka is unreachable"]
