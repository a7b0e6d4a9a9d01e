"""A stream of requests, measured and simulated in one pass (pure but for the reading, which is the caller's iterator)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from leaderq.coalescing.analysing.arrivals import Arrival, InOrder, evenly, spread
from leaderq.coalescing.analysing.repeats import HIGH_SHARE, MEMORY, WINDOW, RepeatMeter, Repeats
from leaderq.coalescing.analysing.saving import Saving, SavingSimulator
from leaderq.errors import ConfigurationError

Request = tuple[str, float | None]
"""A key, and the seconds since the epoch, or ``None`` where the stream has no times."""


@dataclass(frozen=True, slots=True)
class Analysis:
    """``savings``: one for each service time; empty if neither the stream nor the caller says when requests come.

    ``span_s``: from the first request to the last; ``rate``: requests per second in it. ``late``: requests whose time lay
    too far back to be put in order. ``untimed``: requests without a time in a stream that has times elsewhere: measured,
    not simulated.
    """

    repeats: Repeats
    savings: tuple[Saving, ...]
    span_s: float | None
    rate: float | None
    late: int
    untimed: int


def analyse(
    requests: Iterable[Request],
    *,
    services_s: Sequence[float] = (1.0,),
    waiters: int = 1,
    rate: float | None = None,
    resolution_s: float = 0.0,
    window: int = WINDOW,
    memory: int = MEMORY,
    high_share: float = HIGH_SHARE,
) -> Analysis:
    """Measure how the keys repeat, and simulate what coalescing saves at each of ``services_s``.

    The requests come at their own times, of which equal ones are spread over ``resolution_s``, or, with ``rate``, evenly
    at so many per second. Distances are counted in the order of the times, if they have any.

    :raises ConfigurationError: a parameter cannot be used.
    """
    if rate is not None and not 0 < rate < float("inf"):
        raise ConfigurationError(f"rate={rate!r}: give requests per second, above 0")
    meter = RepeatMeter(window=window, memory=memory, high_share=high_share)
    simulators = [SavingSimulator(one, waiters=waiters) for one in services_s]
    clock = _Span()
    timed = _Timed(requests, meter.note)
    in_order: InOrder | None = None
    arrivals: Iterable[Arrival]
    if rate is not None:
        arrivals = evenly((key for key, _ in requests), rate=rate)
    else:
        in_order = InOrder(timed)
        arrivals = spread(in_order, resolution_s=resolution_s) if resolution_s else in_order
    for at_s, key in arrivals:
        meter.note(key)
        clock.note(at_s)
        for simulator in simulators:
            simulator.note(at_s, key)
    return Analysis(
        repeats=meter.result(),
        savings=tuple(one.result() for one in simulators) if clock.count else (),
        span_s=clock.span_s,
        rate=rate or clock.rate,
        late=in_order.late if in_order else 0,
        untimed=timed.untimed,
    )


class _Timed:
    """The requests that have a time; of the others only the key is told."""

    def __init__(self, requests: Iterable[Request], on_untimed: Callable[[str], object]) -> None:
        self._requests = requests
        self._on_untimed = on_untimed
        self.untimed = 0

    def __iter__(self) -> Iterator[Arrival]:
        for key, at_s in self._requests:
            if at_s is None:
                self.untimed += 1
                self._on_untimed(key)
            else:
                yield at_s, key


class _Span:
    """From the first request to the last."""

    def __init__(self) -> None:
        self.count = 0
        self._first_s = 0.0
        self._last_s = 0.0

    def note(self, at_s: float) -> None:
        if not self.count:
            self._first_s = at_s
        self._last_s = at_s
        self.count += 1

    @property
    def span_s(self) -> float | None:
        return self._last_s - self._first_s if self.count else None

    @property
    def rate(self) -> float | None:
        return (self.count - 1) / self.span_s if self.span_s else None
