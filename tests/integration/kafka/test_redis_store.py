"""The example's offset store, on a real Redis and, as a career's, on a real Kafka too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from driving import Driver, Recorder

from leaderq.errors import LeaderqError
from leaderq.kafka import EffectRefused, Record, StoreAway, dead_letter
from leaderq.kafka.record import Partition
from leaderq.kafka.stores.handle_call import HandleCall
from leaderq.kafka.topics import create_topics, end_offsets
from leaderq.term import Term
from leaderq.testing import OffsetStoreContract

redis: Any = pytest.importorskip("redis", reason="pip install -e '.[dev]'")
sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "redis_store"))
from redis_offsets import RedisOffsets  # noqa: E402

A = Partition("orders", 0)


class TestRedisOffsets(OffsetStoreContract):
    @pytest.fixture(autouse=True)
    def _on(self, redis_url: str) -> None:
        self.url = redis_url
        self.redis = redis.Redis.from_url(redis_url, decode_responses=True)

    def make_store(self) -> RedisOffsets:
        return RedisOffsets(self.url)

    def add(self, store: Any, name: str) -> None:
        store.count("effects", name)

    def effects(self) -> list[str]:
        counts = self.redis.hgetall("effects").items()
        return [name for name, times in counts for _ in range(int(times))]

    @pytest.mark.parametrize("is_carried_out", [True, False])
    def test_a_script_that_was_not_answered_is_repeated_and_counts_once(
        self, is_carried_out: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        leader = self.leader()
        leader.begin()
        self.add_in_handle(leader.store, "a")
        real = leader.store._server.eval

        def lost(*given: Any) -> None:
            monkeypatch.undo()
            if is_carried_out:
                real(*given)
            raise redis.ConnectionError("no answer")

        monkeypatch.setattr(leader.store._server, "eval", lost)
        with pytest.raises(StoreAway):
            leader.commit({A: 5})
        leader.commit_positions({Partition("orders", 1): 3})
        leader.commit({A: 5})
        assert self.standing() == ["a"]

    def test_what_redis_would_refuse_changes_nothing_and_is_an_effect_refused(self) -> None:
        leader = self.leader()
        leader.begin()
        self.redis.set(f"{self._career}-text", "x")
        self.redis.hset(f"{self._career}-hash", "name", "x")
        for bad in ("text", "hash"):
            self.add_in_handle(leader.store, "a")
            with HandleCall():
                leader.store.count(f"{self._career}-{bad}", "name")
            with pytest.raises(EffectRefused):
                leader.commit({A: 5})
            leader.store.undo()
        leader.commit({A: 4})
        assert (self.standing(), leader.begin()) == ([], {A: 4})

    def test_doctor_hears_whether_it_answers(self) -> None:
        assert "appendfsync=everysec" in self.leader().store.check(None)
        with pytest.raises(LeaderqError, match="does not answer"):
            RedisOffsets("redis://127.0.0.1:1").check(None)  # type: ignore[arg-type]


class Counting(Recorder):
    max_records = 20

    def handle(self, records: Sequence[Record], term: Term) -> None:
        super().handle(records, term)
        for record in records:
            where = self.topics if record.value != b"13" else f"{self.topics}-text"
            self.offsets.count(where, record.value.decode())  # type: ignore[union-attr]


def test_a_career_counts_each_record_once_and_sets_the_refused_one_aside(
    drive: Callable[..., Driver],
    feed: Callable[[int, int], list[bytes]],
    kafka_broker: Any,
    four_partitions: str,
    redis_url: str,
) -> None:
    server = redis.Redis.from_url(redis_url, decode_responses=True)
    server.set(f"{four_partitions}-text", "x")
    dead = f"{four_partitions}-dead"
    create_topics(kafka_broker.address, {dead: 1})
    values = feed(0, 100)
    ends = end_offsets(kafka_broker.address, four_partitions)
    for _ in range(2):  # two leaders, one after the other
        store = RedisOffsets(redis_url)
        leader = drive(Counting, offsets=store, on_error=dead_letter(dead)).begin()

        def held(leader: Driver = leader) -> bool:
            draining = leader.career._assembly.consumer.loaded
            return {where.number: at for where, at in draining.items()} == ends

        leader.run_until(held)
        leader.end()
        leader.career.retire()
    wanted = {value.decode(): "1" for value in values if value != b"13"}
    assert server.hgetall(four_partitions) == wanted
    assert end_offsets(kafka_broker.address, dead) == {0: 1}
