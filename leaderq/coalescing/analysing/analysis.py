"""How the keys of a stream repeat, and how many runs coalescing would save on it: one pass, bounded
memory. Pure.

The requests of a stream are numbered in their order. Where the request ``j`` is the next one after
``i`` with the same key, ``j`` is a *repeat*, and ``j - i`` is its **repeat distance**: 1 if they
follow each other directly. As long as no more requests than the **minimum repeat distance** are in
hand at a time, no two of one key are. A repeat is **near** if its distance is at most ``window``,
which stands for the number of requests in hand at a time. The **duplication class** of a stream is

======  ==================================================================================
none    no key repeats
sparse  keys repeat, but near repeats are less than 5 % of the requests
high    near repeats are that share or more: coalescing pays
======  ==================================================================================

It is told by the share and not by the minimum, for which one pair in a million requests is enough.
What is **saved** is simulated: the stream played through the automaton that the coordinators use,
one per key on which somebody works, each run taking ``service_s`` seconds, as many keys as there
are side by side. A request that comes at the very moment at which a run ends comes after it.

*Guarantees:* exact for this model, and for every distance up to ``memory``, the keys kept (some 200
bytes each; long keys are kept as a hash). What is forgotten is counted: 0 means all is exact.
*Not guaranteed:* that your handler takes the same time always, or that a run has a worker at once:
where runs wait for workers, or take longer under load, more is saved than is said here.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from hashlib import blake2b
from heapq import heappop, heappush

from leaderq.coalescing.analysing.requests import Arrival, InOrder, Request, spread
from leaderq.coalescing.automaton import Departure, EnqueueOutcome, TrafficAutomaton
from leaderq.errors import ConfigurationError

MEMORY = 100_000
WINDOW = 100
_HIGH_SHARE = 0.05
_LONG = 64


class Duplication(Enum):
    """The duplication class; see the module."""

    NONE = "none"
    SPARSE = "sparse"
    HIGH = "high"


@dataclass(slots=True)
class Repeats:
    """What a :class:`RepeatMeter` has seen. ``minimum_distance`` is ``None`` if no key repeats.

    ``distances``: how many repeats have a distance of up to 1, 2, 4, 8...; each is counted once, at
    the first bound that holds it. ``hottest``: the keys that came most often, with how often (long
    ones as they were shortened). ``forgotten``: how many keys were; unless 0, ``keys`` may count a
    key twice, and ``hottest`` be too low.
    """

    window: int
    requests: int = 0
    keys: int = 0
    repeats: int = 0
    near: int = 0
    minimum_distance: int | None = None
    distances: dict[int, int] = field(default_factory=dict)
    hottest: tuple[tuple[str, int], ...] = ()
    forgotten: int = 0

    @property
    def duplication(self) -> Duplication:
        """The duplication class within the window."""
        return classified(self.repeats, self.near, self.requests)

    @property
    def near_share(self) -> float:
        """Near repeats per request."""
        return self.near / self.requests if self.requests else 0.0


class RepeatMeter:
    """Measures a stream; see the module.

    :raises ConfigurationError: ``window`` or ``memory`` is below 1, or ``memory`` below ``window``.
    """

    def __init__(self, *, window: int = WINDOW, memory: int = MEMORY) -> None:
        given = {"window": window, "memory": memory}
        problems = [f"{name}={n!r}: give 1 or more" for name, n in given.items() if n < 1]
        if memory < window:
            problems.append(
                f"memory={memory!r} is less than window={window!r}: repeats within the window would"
                " be missed"
            )
        if problems:
            raise ConfigurationError(*problems)
        self._memory = memory
        self._seen: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._found = Repeats(window)

    def note(self, key: str) -> None:
        """The next request of the stream."""
        found = self._found
        found.requests += 1
        if len(key) > _LONG:
            digest = blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
            key = f"{key[:_LONG]}...{digest}"
        last, count = self._seen.get(key, (0, 0))
        self._seen[key] = (found.requests, count + 1)
        if not count:
            found.keys += 1
            if len(self._seen) > self._memory:
                self._seen.popitem(last=False)
            return
        self._seen.move_to_end(key)
        distance = found.requests - last
        found.repeats += 1
        found.near += distance <= found.window
        found.minimum_distance = min(distance, found.minimum_distance or distance)
        bound = 1 << (distance - 1).bit_length()
        found.distances[bound] = found.distances.get(bound, 0) + 1

    def result(self, hottest: int = 5) -> Repeats:
        """What was seen so far, with so many of the hottest keys."""
        top = sorted(self._seen.items(), key=lambda one: -one[1][1])[:hottest]
        return replace(
            self._found,
            distances=dict(sorted(self._found.distances.items())),
            hottest=tuple((key[: _LONG + 3], count) for key, (_, count) in top),
            forgotten=self._found.keys - len(self._seen),
        )


def classified(repeats: int, near: int, requests: int) -> Duplication:
    """The duplication class of ``requests``, of which so many are repeats, and so many near
    ones.
    """
    if not repeats:
        return Duplication.NONE
    return Duplication.HIGH if near >= _HIGH_SHARE * requests else Duplication.SPARSE


@dataclass(slots=True)
class Saving:
    """What became of the requests. ``waited_s``: of those blocked, the mean; ``keys_at_once``: the
    most keys that were worked on at a time.
    """

    service_s: float
    requests: int = 0
    accepted: int = 0
    blocked: int = 0
    declined: int = 0
    waited_s: float = 0.0
    keys_at_once: int = 0

    @property
    def runs(self) -> int:
        """Runs of the handler; without coalescing there is one for each request."""
        return self.accepted + self.blocked

    @property
    def met(self) -> int:
        """Requests that found somebody at work on their key: what is near, told by time instead of
        by a window.
        """
        return self.blocked + self.declined

    @property
    def duplication(self) -> Duplication:
        """The duplication class at this service time: none if no request met another, high if 5 %
        or more did, else sparse.
        """
        return classified(self.met, self.met, self.requests)

    @property
    def share(self) -> float:
        """The part of all runs that is saved, 0 to 1."""
        return self.declined / self.requests if self.requests else 0.0


class SavingSimulator:
    """See the module.

    :raises ConfigurationError: ``service_s`` is not above 0, or ``waiters`` is negative.
    """

    def __init__(self, service_s: float, *, waiters: int = 1) -> None:
        if not 0 < service_s < float("inf"):
            raise ConfigurationError(
                f"service_s={service_s!r}: give the seconds that one run takes, above 0"
            )
        if waiters < 0:
            raise ConfigurationError(f"waiters={waiters!r}: give 0 or more")
        self._waiters = waiters
        self._automata: dict[str, TrafficAutomaton[tuple[float, int]]] = {}
        self._ends: list[tuple[float, int, str]] = []
        self._outcomes = dict.fromkeys(EnqueueOutcome, 0)
        self._waited_s = 0.0
        self._found = Saving(service_s)

    def note(self, at_s: float, key: str) -> EnqueueOutcome:
        """The next request, at ``at_s`` seconds on any clock; not earlier than the one before."""
        self._end_until(at_s)
        found = self._found
        found.requests += 1
        automaton = self._automata.get(key)
        if automaton is None:
            automaton = self._automata[key] = TrafficAutomaton(self._waiters)
            found.keys_at_once = max(found.keys_at_once, len(self._automata))
        outcome = automaton.enqueue((at_s, found.requests))
        self._outcomes[outcome] += 1
        if outcome is EnqueueOutcome.ACCEPT:
            heappush(self._ends, (at_s + found.service_s, found.requests, key))
        return outcome

    def _end_until(self, at_s: float) -> None:
        while self._ends and self._ends[0][0] <= at_s:
            end_s, _, key = heappop(self._ends)
            automaton = self._automata[key]
            head = automaton.head
            assert head is not None  # its end was noted when it began
            if automaton.dequeue(head) is not Departure.HANDED_OVER or automaton.head is None:
                del self._automata[key]
                continue
            came_s, number = automaton.head
            self._waited_s += end_s - came_s
            heappush(self._ends, (end_s + self._found.service_s, number, key))

    def result(self) -> Saving:
        """What became of the requests so far; those that wait still will run."""
        self._end_until(float("inf"))
        accepted, blocked, declined = self._outcomes.values()
        return replace(
            self._found,
            accepted=accepted,
            blocked=blocked,
            declined=declined,
            waited_s=self._waited_s / blocked if blocked else 0.0,
        )


@dataclass(frozen=True, slots=True)
class Analysis:
    """``savings``: one for each service time; empty if neither the stream nor the caller says when
    requests come.

    ``span_s``: from the first request to the last; ``rate``: requests per second in it. ``late``:
    requests whose time lay too far back to be put in order. ``untimed``: requests without a time in
    a stream that has times elsewhere: measured, not simulated.
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
) -> Analysis:
    """Measure how the keys repeat, and simulate what coalescing saves at each of ``services_s``.

    The requests come at their own times, of which equal ones are spread over ``resolution_s``, or,
    with ``rate``, evenly at so many per second. Distances are counted in the order of the times, if
    they have any.

    :raises ConfigurationError: a parameter cannot be used.
    """
    if rate is not None and not 0 < rate < float("inf"):
        raise ConfigurationError(f"rate={rate!r}: give requests per second, above 0")
    meter = RepeatMeter(window=window, memory=memory)
    simulators = [SavingSimulator(one, waiters=waiters) for one in services_s]
    untimed = count = 0
    first_s: float | None = None
    last_s = 0.0

    def timed() -> Iterator[Arrival]:
        """The requests that have a time; of the others only the key counts."""
        nonlocal untimed
        for number, (key, at_s) in enumerate(requests):
            if rate is not None:
                yield number / rate, key
            elif at_s is not None:
                yield at_s, key
            else:
                untimed += 1
                meter.note(key)

    in_order = InOrder(timed())
    arrivals: Iterable[Arrival] = in_order
    if resolution_s and rate is None:
        arrivals = spread(in_order, resolution_s=resolution_s)
    for last_s, key in arrivals:
        first_s = last_s if first_s is None else first_s
        count += 1
        meter.note(key)
        for simulator in simulators:
            simulator.note(last_s, key)
    span_s = None if first_s is None else last_s - first_s
    return Analysis(
        repeats=meter.result(),
        savings=tuple(one.result() for one in simulators) if count else (),
        span_s=span_s,
        rate=rate or ((count - 1) / span_s if span_s else None),
        late=in_order.late,
        untimed=untimed,
    )
