"""A key that cannot be sent holds up its own requests, and no others."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_sink import Make

from leaderq.errors import SinkAway, SinkBusy
from leaderq.producing import ALL_CONFIRMED, BatchOutcome, Retry, WhenFull
from leaderq.producing.sending import SinkSender
from leaderq.testing import eventually

Record = tuple[str, int]


class ByKey:
    """Takes all but those of the keys in ``stuck``, which it returns to be given again."""

    def __init__(self, *stuck: str, error: SinkAway | None = None) -> None:
        self.stuck = set(stuck)
        self.error = error or SinkAway("no leader for this one")
        self.retried = 0
        self.confirmed: dict[str, list[int]] = defaultdict(list)
        self.largest = 0

    def send(self, batch: Sequence[Record], timeout_s: float) -> BatchOutcome:
        self.largest = max(self.largest, len(batch))
        again = [at for at, (key, _) in enumerate(batch) if key in self.stuck]
        for at, (key, number) in enumerate(batch):
            if at not in again:
                self.confirmed[key].append(number)
        self.retried += len(again) == len(batch)
        return BatchOutcome(again=again, error=self.error) if again else ALL_CONFIRMED

    def close(self, timeout_s: float) -> None:
        pass


def key_of(record: Record) -> str:
    return record[0]


@pytest.mark.parametrize("batch_items", [1, 10, 1000])
@pytest.mark.parametrize("has_journal", [False, True])
def test_the_healthy_keys_go_on_and_the_stuck_one_keeps_its_order(
    producer: Make, batch_items: int, has_journal: bool, tmp_path: Path
) -> None:
    sink = ByKey("stuck")
    journal = tmp_path if has_journal else None
    one = producer(sink, key=key_of, batch_items=batch_items, max_items=5000, journal=journal)
    for number in range(1000):
        if number % 10 == 0:
            one.send(("stuck", number))
        one.send((f"healthy{number % 3}", number))
    eventually(lambda: one.snapshot().balance.confirmed == 1000)
    assert one.snapshot().balance.pending == 100
    assert "no leader" in str(one.snapshot().sink_error)
    sink.stuck.clear()
    assert one.flush(60)
    assert one.snapshot().sink_error is None
    assert sink.confirmed["stuck"] == list(range(0, 1000, 10))
    for key, numbers in sink.confirmed.items():
        assert numbers == sorted(numbers), key
    assert sink.largest <= batch_items


def test_what_the_sink_keeps_neither_expires_nor_counts_an_attempt(producer: Make) -> None:
    sink = ByKey("kept", error=SinkBusy("no leader for this one"))
    retry = Retry(first_s=0.001, most_s=0.002, attempts=2)
    one = producer(sink, key=key_of, retry=retry)
    future = one.submit(("kept", 0), ttl_s=0.05)
    eventually(lambda: one.snapshot().retries >= 50)
    sink.stuck.clear()
    assert future.result(60) is None
    assert sink.confirmed["kept"] == [0]


@pytest.mark.parametrize("seed", range(5))
def test_keys_that_come_and_go_lose_nothing_and_keep_their_order(
    producer: Make, tmp_path: Path, seed: int
) -> None:
    luck = random.Random(seed)
    keys = "abcdef"
    sink = ByKey()
    one = producer(
        sink,
        key=key_of,
        batch_items=luck.choice([1, 3, 50]),
        max_items=luck.choice([5, 50, 1000]),
        journal=tmp_path,
        when_full=WhenFull.RAISE,
    )
    sent: dict[str, list[Any]] = defaultdict(list)
    for number in range(1500):
        if luck.random() < 0.02:
            sink.stuck = set(luck.sample(keys, luck.randrange(len(keys) + 1)))
        key = luck.choice(keys)
        one.send((key, number))
        sent[key].append(number)
    sink.stuck = set()
    assert one.flush(60)
    assert sink.confirmed == sent


@pytest.mark.parametrize(("held", "is_asked"), [(4, True), (5, False), (6, False)])
def test_what_is_held_back_for_stuck_keys_takes_at_most_half_of_the_memory(
    held: int, is_asked: bool
) -> None:
    asked: list[float] = []
    sender: Any = SimpleNamespace(
        _held_items=held,
        _held={},
        _options=SimpleNamespace(max_items=10),
        _buffer=SimpleNamespace(take_batch=lambda until_s: asked.append(until_s) or []),
        service=SimpleNamespace(pause=lambda seconds: None),
    )
    assert SinkSender._fresh(sender, 7.0) == []
    assert asked == ([7.0] if is_asked else [])
