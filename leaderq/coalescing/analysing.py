"""Whether coalescing pays on a stream of requests: how its keys repeat, and how many runs would be
saved. One pass, bounded memory; pure, except for the reading.

If request ``j`` is the next one after ``i`` with the same key, ``j`` is a *repeat* and ``j - i``
its **repeat distance**. A repeat is **near** if its distance is at most ``window``, which stands
for the number of requests in hand at a time. The **duplication class** of a stream is *none* (no
key repeats), *sparse* (less than 5 % of the requests are near repeats) or *high* (coalescing pays).
What is **saved** is simulated with the coordinators' automaton: each run takes ``service_s``
seconds, and all keys run side by side. A request that comes when a run ends comes after it.

*Guarantees:* exact for this model, and for every distance up to ``memory``, the keys kept (some 200
bytes each; long keys are kept as a hash). Forgotten keys are counted: 0 means all is exact.
*Not guaranteed:* that your handler always takes the same time, or that a run has a worker at once:
if runs wait for workers, or take longer under load, more is saved than is said here.

The requests of access logs are put in the order of their times, because servers write them when
they end, from many threads.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from enum import Enum
from hashlib import blake2b
from heapq import heappop, heappush
from typing import BinaryIO

from leaderq.arguments import above_0, at_least, require, unless
from leaderq.coalescing.automaton import Departure, EnqueueOutcome, TrafficAutomaton
from leaderq.errors import ConfigurationError

Request = tuple[str, float | None]
"""A key, and the seconds since the epoch, or ``None`` where the stream has no times."""
Arrival = tuple[float, str]
"""Seconds on any clock, and the key."""
Parse = Callable[[str], Request]

MEMORY = 100_000
WINDOW = 100
_HIGH_SHARE = 0.05
_LONG = 64
BUFFER = 10_000
LONGEST_LINE_BYTES = 1 << 20
SHOWN = 3
ACCESS_LOG_RESOLUTION_S = 1.0

_ACCESS_LOG = re.compile(
    r"(?P<client>\S+) (?P<ident>\S+) (?P<user>.+?) \[(?P<time>[^\]]+)\] "
    r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}) (?P<bytes>\S+)'
    r'(?: "(?P<referer>(?:[^"\\]|\\.)*)" "(?P<agent>(?:[^"\\]|\\.)*)")?.*'
)
_OF_REQUEST = ("method", "path", "protocol")
ACCESS_LOG_FIELDS = (*_ACCESS_LOG.groupindex, *_OF_REQUEST)


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
        return classified(self.repeats, self.near, self.requests)

    @property
    def near_share(self) -> float:
        return self.near / self.requests if self.requests else 0.0


class RepeatMeter:
    """Measures a stream; see the module."""

    def __init__(self, *, window: int = WINDOW, memory: int = MEMORY) -> None:
        less = f"memory={memory!r} is less than window={window!r}"
        require(
            at_least("window", window, 1),
            at_least("memory", memory, 1),
            unless(memory >= window, f"{less}: repeats within the window would be missed"),
        )
        self._memory = memory
        self._seen: OrderedDict[str, tuple[int, int]] = OrderedDict()
        self._found = Repeats(window)

    def note(self, key: str) -> None:
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
        top = sorted(self._seen.items(), key=lambda one: -one[1][1])[:hottest]
        return replace(
            self._found,
            distances=dict(sorted(self._found.distances.items())),
            hottest=tuple((key[: _LONG + 3], count) for key, (_, count) in top),
            forgotten=self._found.keys - len(self._seen),
        )


def classified(repeats: int, near: int, requests: int) -> Duplication:
    if not repeats:
        return Duplication.NONE
    return Duplication.HIGH if near >= _HIGH_SHARE * requests else Duplication.SPARSE


@dataclass(slots=True)
class Saving:
    """What became of the requests. ``waited_s``: the mean of those blocked; ``keys_at_once``: the
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
        """Requests that found somebody at work on their key."""
        return self.blocked + self.declined

    @property
    def duplication(self) -> Duplication:
        """The duplication class at this service time, by the share of requests that met another."""
        return classified(self.met, self.met, self.requests)

    @property
    def share(self) -> float:
        """The part of all runs that is saved, 0 to 1."""
        return self.declined / self.requests if self.requests else 0.0


class SavingSimulator:
    """Plays a stream through the automata; see the module."""

    def __init__(self, service_s: float, *, waiters: int = 1) -> None:
        require(above_0("service_s", service_s, "seconds"), at_least("waiters", waiters, 0))
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
) -> Analysis:
    """Measure how the keys repeat, and simulate what coalescing saves at each of ``services_s``.

    The requests come at their own times, of which equal ones are spread over ``resolution_s``, or,
    with ``rate``, evenly at so many per second. Distances are counted in the order of the times, if
    they have any.

    :raises ConfigurationError: a parameter cannot be used.
    """
    require(None if rate is None else above_0("rate", rate, "requests per second"))
    meter = RepeatMeter()
    simulators = [SavingSimulator(one, waiters=waiters) for one in services_s]
    untimed = count = 0
    first_s: float | None = None
    last_s = 0.0

    def timed() -> Iterator[Arrival]:
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


class BadLine(Exception):
    """A line that cannot be used, and why."""


def key_and_time(line: str) -> Request:
    """``key`` or ``key`` TAB ``time``: seconds of the epoch, or ISO 8601 (UTC without a zone)."""
    key, tab, time = line.rpartition("\t")
    if not tab:
        return time, None
    try:
        return key, float(time)
    except ValueError:
        pass
    try:
        at = datetime.fromisoformat(re.sub(r"[zZ]$", "+00:00", time.strip()))
        return key, (at if at.tzinfo else at.replace(tzinfo=timezone.utc)).timestamp()
    except (ValueError, OverflowError):
        raise BadLine(f"not a time: {time[:40]!r}") from None


def access_log(field: str) -> Parse:
    """Take lines of an access log of Apache or nginx, combined or common, for ``field``."""
    if field not in ACCESS_LOG_FIELDS:
        known = ", ".join(ACCESS_LOG_FIELDS)
        raise ConfigurationError(f"an access log has no field {field!r}; its fields are {known}")

    def parse(line: str) -> Request:
        found = _ACCESS_LOG.fullmatch(line)
        if found is None:
            raise BadLine("not a line of an access log")
        try:
            at_s = datetime.strptime(found["time"], "%d/%b/%Y:%H:%M:%S %z").timestamp()
        except ValueError:
            raise BadLine(f"not a time of an access log: {found['time'][:40]!r}") from None
        if field not in _OF_REQUEST:
            return found[field] or "-", at_s
        parts = found["request"].split(" ")
        if len(parts) < 2:
            raise BadLine(f"not an HTTP request: {found['request'][:40]!r}")
        return parts[min(_OF_REQUEST.index(field), len(parts) - 1)], at_s

    return parse


class RequestLines:
    """The requests of ``stream``, line by line.

    ``lines`` counts the lines read, but for empty ones; ``requests`` those that were requests;
    ``undecodable`` those that are not UTF-8; ``unusable`` those that ``parse`` refused, or longer
    than 1 MiB. ``complaints`` holds the first few, with their numbers.
    """

    def __init__(self, stream: BinaryIO, parse: Parse) -> None:
        self._stream = stream
        self._parse = parse
        self.lines = 0
        self.requests = 0
        self.undecodable = 0
        self.unusable = 0
        self.complaints: list[str] = []

    def __iter__(self) -> Iterator[Request]:
        number, stream = 0, self._stream
        while raw := stream.readline(LONGEST_LINE_BYTES):
            number += 1
            self.lines += 1
            is_whole = raw.endswith(b"\n") or len(raw) < LONGEST_LINE_BYTES
            try:
                if not is_whole:
                    while raw and not raw.endswith(b"\n"):
                        raw = stream.readline(LONGEST_LINE_BYTES)
                    raise BadLine(f"longer than {LONGEST_LINE_BYTES} bytes")  # noqa: TRY301
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if not text:
                    self.lines -= 1
                    continue
                request = self._parse(text)
            except UnicodeDecodeError as exc:
                self.undecodable += 1
                self._complain(number, f"not UTF-8 at byte {exc.start + 1}")
            except BadLine as exc:
                self.unusable += 1
                self._complain(number, str(exc))
            else:
                self.requests += 1
                yield request

    def _complain(self, number: int, what: str) -> None:
        if len(self.complaints) < SHOWN:
            self.complaints.append(f"line {number}: {what}")


class InOrder:
    """``arrivals`` in the order of their times, as far as ``buffer`` requests can be rearranged;
    equal times keep their order.

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
        self.late += at_s < self._newest_s
        self._newest_s = max(at_s, self._newest_s)
        return self._newest_s, key


def spread(
    arrivals: Iterable[Arrival], *, resolution_s: float, buffer: int = BUFFER
) -> Iterator[Arrival]:
    """Spread requests with one and the same time evenly over ``resolution_s`` from it, because a
    clock of whole seconds hides when within the second they came. If there are more than
    ``buffer``, the rest comes at the end of it.
    """
    ties: list[str] = []
    at_s = 0.0
    is_full = False
    for next_s, key in arrivals:
        if next_s != at_s:
            yield from _spread(at_s, ties, resolution_s)
            at_s, ties, is_full = next_s, [], False
        elif not is_full and len(ties) >= buffer:
            yield from _spread(at_s, ties, resolution_s)
            ties, is_full = [], True
        if is_full:
            yield at_s + resolution_s, key
        else:
            ties.append(key)
    yield from _spread(at_s, ties, resolution_s)


def _spread(at_s: float, keys: list[str], resolution_s: float) -> Iterator[Arrival]:
    step_s = resolution_s / len(keys) if keys else 0.0
    for number, key in enumerate(keys):
        yield at_s + number * step_s, key
