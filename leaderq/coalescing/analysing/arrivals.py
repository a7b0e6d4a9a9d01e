"""When the requests of a stream come, for a simulation: in order, and not all at the same instant (pure).

Logs are written when requests end, and by many threads, so times go back a little; and they are cut to whole seconds.
Memory: the ``buffer`` requests read last.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

BUFFER = 10_000
Arrival = tuple[float, str]
"""Seconds on any clock, and the key."""


class InOrder:
    """``arrivals`` in the order of their times, as far as ``buffer`` requests can be rearranged; equal times keep their
    order.

    One that comes later still is given the time of the one before it, and counted in ``late``.
    """

    def __init__(self, arrivals: Iterable[Arrival], *, buffer: int = BUFFER) -> None:
        self._arrivals = arrivals
        self._buffer = buffer
        self._newest_s = float("-inf")
        self.late = 0

    def __iter__(self) -> Iterator[Arrival]:
        heap: list[tuple[float, int, str]] = []
        for number, (at_s, key) in enumerate(self._arrivals):
            heappush(heap, (at_s, number, key))
            if len(heap) > self._buffer:
                yield self._next(heap)
        while heap:
            yield self._next(heap)

    def _next(self, heap: list[tuple[float, int, str]]) -> Arrival:
        at_s, _, key = heappop(heap)
        if at_s < self._newest_s:
            self.late += 1
            return self._newest_s, key
        self._newest_s = at_s
        return at_s, key


def spread(arrivals: Iterable[Arrival], *, resolution_s: float, buffer: int = BUFFER) -> Iterator[Arrival]:
    """Those with one and the same time spread evenly over ``resolution_s`` from it: what a clock of whole seconds writes
    down has come at any time within the second. Of more than ``buffer`` of them the rest comes at the end of it."""
    ties: list[str] = []
    at_s = 0.0
    excess_s = 0.0
    for next_s, key in arrivals:
        if ties and (next_s != at_s or len(ties) >= buffer):
            excess_s = resolution_s if next_s == at_s else 0.0
            yield from _spread(at_s, ties, resolution_s)
            ties.clear()
        if excess_s and next_s == at_s:
            yield at_s + excess_s, key
            continue
        excess_s = 0.0
        at_s = next_s
        ties.append(key)
    yield from _spread(at_s, ties, resolution_s)


def _spread(at_s: float, keys: list[str], resolution_s: float) -> Iterator[Arrival]:
    step_s = resolution_s / len(keys) if keys else 0.0
    for number, key in enumerate(keys):
        yield at_s + number * step_s, key


def evenly(keys: Iterable[str], *, rate: float) -> Iterator[Arrival]:
    """One request every ``1/rate`` seconds."""
    for number, key in enumerate(keys):
        yield number / rate, key
