"""What one end sends arrives in that order, whenever the two are cut off from each other."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.testing.simulation.ensemble.streams import Stream
from leaderq.testing.simulation.network import _Stream


class Time:
    """Passes by hand; draws how long a message takes."""

    def __init__(self, seed: int) -> None:
        self.now_s = 0.0
        self.chance = random.Random(seed)
        self._due: list[Any] = []
        self._order = count()

    def arrive(self, at_s: float, act: Callable[[], object]) -> None:
        heapq.heappush(self._due, (at_s, next(self._order), act))

    def at(self, delay_s: float, act: Callable[[], object]) -> None:
        self.arrive(self.now_s + delay_s, act)

    def delay_s(self, _what: str = "") -> float:
        return self.chance.choice([0.001, 0.002, 0.1])

    def pass_s(self, seconds: float) -> None:
        until_s = self.now_s + seconds
        while self._due and self._due[0][0] <= until_s:
            self.now_s, _, act = heapq.heappop(self._due)
            act()
        self.now_s = until_s


def of_clients(time: Time, got: list[int]) -> Any:
    network: Any = SimpleNamespace(world=time, delay_s=time.delay_s)
    stream = _Stream(network)

    def cut() -> None:
        stream.is_cut = True

    return lambda number: stream.carry(lambda: got.append(number)), cut, stream.heal


def of_servers(time: Time, got: list[int]) -> Any:
    settings: Any = SimpleNamespace(now=lambda: time.now_s, at=time.at, delay=time.delay_s)
    stream = Stream(settings, lambda act, *args: act(*args))
    return lambda number: stream.send("any", got.append, number), stream.cut, stream.heal


@pytest.mark.parametrize("kind", [of_clients, of_servers])
def test_what_is_sent_arrives_in_that_order_through_any_cuts(kind: Any) -> None:
    for seed in range(300):
        time, got = Time(seed), []
        send, cut, heal = kind(time, got)
        for number in range(60):
            send(number)
            time.chance.choice([lambda: None, lambda: None, cut, heal])()
            time.pass_s(time.chance.choice([0.0, 0.001, 0.05]))
        heal()
        time.pass_s(100.0)
        assert got == list(range(60)), seed
