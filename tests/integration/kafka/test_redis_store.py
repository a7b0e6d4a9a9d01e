"""The example's offset store, on a real Redis."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from leaderq.kafka import StoreAway
from leaderq.kafka.record import Partition
from leaderq.testing import OffsetStoreContract

redis: Any = pytest.importorskip("redis", reason="pip install -e '.[dev]'")
sys.path.insert(0, str(Path(__file__).parents[3] / "examples" / "redis_store"))
from redis_offsets import RedisOffsets  # noqa: E402

A = Partition("orders", 0)


class TestRedisOffsets(OffsetStoreContract):
    @pytest.fixture(autouse=True)
    def _on(self, redis_url):
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
        self, is_carried_out, monkeypatch
    ):
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
