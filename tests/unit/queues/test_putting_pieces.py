"""The pieces of the put path and of the recipes that need no server."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from leaderq.errors import ConfigurationError
from leaderq.queues import BlockingQueueConsumer
from leaderq.queues.putting import WARN_FROM, SequenceMonitor
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.testing import eventually


def test_side_data_of_a_shard_lie_beside_its_sharder():
    name = "queue-0b0a3c55-6f5c-4c39-8f1c-000000000001"
    shard, side = QueuePaths(f"/jobs/{name}"), f"/jobs-side/{name}"
    assert (shard.path, shard.item("queue-1")) == (f"/jobs/{name}", f"/jobs/{name}/queue-1")
    assert (shard.members, shard.dead) == (f"{side}-meta/members", f"{side}-dead")


@pytest.mark.parametrize(
    "number, warns", [(0, False), (WARN_FROM - 1, False), (WARN_FROM, True), (-5, True)]
)
def test_numbers_near_their_end_are_warned_of_once(caplog: Any, number: int, warns: bool):
    sequences = SequenceMonitor("/q")
    for _ in range(5000):
        sequences.saw(f"/q/queue-{number:010}")
    assert caplog.text.count("item numbers run out soon") == warns
    assert sequences.has_warned is warns


def test_a_full_blocking_consumer_waits_and_refuses_nothing():
    consumer: BlockingQueueConsumer[str] = BlockingQueueConsumer(capacity=1)
    with ThreadPoolExecutor(2) as pool:
        futures = [pool.submit(consumer.consume, value) for value in "ab"]
        eventually(lambda: consumer.size() == 1)
        drained: list[str] = []
        while len(drained) < 2:
            consumer.drain_to(drained)
        assert sorted(drained) == ["a", "b"]
        consumer.task_done()
        consumer.task_done()
        assert [future.result(10) for future in futures] == [None, None]
    with pytest.raises(ConfigurationError):
        BlockingQueueConsumer(capacity=0)
