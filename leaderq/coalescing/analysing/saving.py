"""How many runs coalescing would save on a stream: the stream played through the real automaton (pure).

One :class:`~leaderq.coalescing.automaton.TrafficAutomaton` per key on which somebody works, as in a coordinator. Each run
takes ``service_s`` seconds, and as many keys as there are are worked on side by side. At its time a request is accepted
and runs at once, or blocks and runs when the one before it ends, or is declined and never runs: that is what is saved.

*Guarantees:* exact for this model.
*Not guaranteed:* that your handler takes the same time always, or that a run has a
worker at once: where runs wait for workers, or take longer under load, more is saved than is said here. A request that
comes at the very moment at which a run ends comes after it.

Memory: the keys on which somebody works, that is, those that came within the last ``(waiters + 1) * service_s`` seconds
at most.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

from leaderq.coalescing.analysing.repeats import Duplication, classified
from leaderq.coalescing.automaton import Departure, EnqueueOutcome, TrafficAutomaton
from leaderq.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Saving:
    """What became of the requests. ``waited_s``: of those blocked, the mean; ``keys_at_once``: the most keys that were
    worked on at a time."""

    service_s: float
    requests: int
    accepted: int
    blocked: int
    declined: int
    waited_s: float
    keys_at_once: int

    @property
    def runs(self) -> int:
        """Runs of the handler; without coalescing there is one for each request."""
        return self.accepted + self.blocked

    @property
    def met(self) -> int:
        """Requests that found somebody at work on their key: what is near, told by time instead of by a window."""
        return self.blocked + self.declined

    @property
    def duplication(self) -> Duplication:
        """The duplication class at this service time: none if no request met another, high if 5 % or more did, else sparse."""
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
            raise ConfigurationError(f"service_s={service_s!r}: give the seconds that one run takes, above 0")
        if waiters < 0:
            raise ConfigurationError(f"waiters={waiters!r}: give 0 or more")
        self._service_s = service_s
        self._waiters = waiters
        self._automata: dict[str, TrafficAutomaton[tuple[float, int]]] = {}
        self._ends: list[tuple[float, int, str]] = []
        self._number = 0
        self._outcomes = dict.fromkeys(EnqueueOutcome, 0)
        self._waited_s = 0.0
        self._at_once = 0

    def note(self, at_s: float, key: str) -> EnqueueOutcome:
        """The next request, at ``at_s`` seconds on any clock; not earlier than the one before."""
        self._end_until(at_s)
        self._number += 1
        automaton = self._automata.get(key)
        if automaton is None:
            automaton = self._automata[key] = TrafficAutomaton(self._waiters)
            self._at_once = max(self._at_once, len(self._automata))
        outcome = automaton.enqueue((at_s, self._number))
        self._outcomes[outcome] += 1
        if outcome is EnqueueOutcome.ACCEPT:
            heappush(self._ends, (at_s + self._service_s, self._number, key))
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
            heappush(self._ends, (end_s + self._service_s, number, key))

    def result(self) -> Saving:
        """What became of the requests so far; those that wait still will run."""
        self._end_until(float("inf"))
        blocked = self._outcomes[EnqueueOutcome.BLOCK]
        return Saving(
            service_s=self._service_s,
            requests=self._number,
            accepted=self._outcomes[EnqueueOutcome.ACCEPT],
            blocked=blocked,
            declined=self._outcomes[EnqueueOutcome.DECLINE],
            waited_s=self._waited_s / blocked if blocked else 0.0,
            keys_at_once=self._at_once,
        )
