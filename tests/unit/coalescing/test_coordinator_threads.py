"""A hundred threads at once. The same for any order of events: ``test_coordinator_model.py``."""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from typing import NamedTuple

import pytest

from leaderq.coalescing import QueueCoordinator, Refusal

KEYS = "abcde"


class Ran(NamedTuple):
    """What one thread saw of one request."""

    key: str
    asked: int
    began: int
    ended: int
    number: int
    refusal: Refusal | None


@pytest.mark.parametrize("waiters", [0, 1, 3])
def test_a_hundred_threads_never_run_two_at_once_and_whoever_is_declined_is_covered(
    waiters: int,
) -> None:
    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=waiters)
    ticks, seen, begin = itertools.count(1), list[Ran](), threading.Barrier(100)

    def life() -> None:
        begin.wait(120)
        for _ in range(40):
            key, asked = random.choice(KEYS), next(ticks)
            with coordinator.hold(key, {asked}) as token:
                began = next(ticks) if token else 0
                time.sleep(0)
                seen.append(Ran(key, asked, began, next(ticks), token.number, token.refusal))

    switch_s = sys.getswitchinterval()
    sys.setswitchinterval(0.000_01)  # else a thread does all it has to do before the next
    try:
        crowd = [threading.Thread(target=life, daemon=True) for _ in range(100)]
        for each in crowd:
            each.start()
        for each in crowd:
            each.join(120)
            assert not each.is_alive(), "a thread is stuck"
    finally:
        sys.setswitchinterval(switch_s)
    assert coordinator.drain(10) == ()
    counters = coordinator.stats()
    assert counters.accepted + counters.promoted + counters.declined == len(seen) == 4_000
    for key in KEYS:
        runs = sorted((one for one in seen if one.key == key and one.began), key=lambda one: one[2])
        for first, second in itertools.pairwise(runs):
            assert first.ended < second.began
            assert first.number < second.number
        declined = [one.asked for one in seen if one.key == key and one.refusal is Refusal.FULL]
        assert not waiters or all(asked < runs[-1].began for asked in declined)
