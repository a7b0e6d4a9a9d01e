"""What a coordinator has done, and what it has in hand."""

from __future__ import annotations

from dataclasses import dataclass, fields


@dataclass(slots=True)
class Counts:
    """Counted since the coordinator was made; ``runs`` and ``accepted`` are reckoned from the numbers of runs."""

    runs: int = 0
    """Runs begun: accepted and promoted. Also the number of the last run, which is why it never falls."""
    promoted: int = 0
    """Requests that waited, and then ran."""
    blocked: int = 0
    """Requests that had to wait."""
    declined: int = 0
    """Requests declined because all places were taken."""
    replaced: int = 0
    """Requests that waited, and were declined for a newer one."""
    merged: int = 0
    """Requests declined, their value merged into that of one that waited."""
    busy: int = 0
    """Requests that would have had to wait, and did not want to."""
    withdrawn: int = 0
    """Requests that gave up waiting: time-outs, interrupts, cancellations."""
    evicted: int = 0
    """Runs that outlived the safe time-out."""
    shared: int = 0
    """Requests that were given the result of another's run."""
    orphaned: int = 0
    """Requests that hoped for such a result, and asked again, as there was none."""
    abandoned: int = 0
    """Requests that still waited when the coordinator was closed."""
    forgotten: int = 0
    """Idle keys forgotten by the cap or a sweep; with the default, each is forgotten at once, and none is counted."""

    def __add__(self, other: Counts) -> Counts:
        return Counts(*(getattr(self, each.name) + getattr(other, each.name) for each in fields(Counts)))


@dataclass(frozen=True, slots=True)
class KeyCounters:
    """Of one key, since its automaton was made: with the default, since it was last idle."""

    runs: int
    blocked: int
    declined: int
    """Requests declined for any reason."""


@dataclass(frozen=True, slots=True)
class Counters:
    """All of a coordinator; the stripes are read one after the other, so that sums may be off by what happened meanwhile."""

    counts: Counts
    running: int
    """Keys that somebody works on."""
    waiting: int
    """Requests that wait."""
    idle: int
    """Keys kept although nobody works on them."""

    @property
    def accepted(self) -> int:
        """Requests that ran at once."""
        return self.counts.runs - self.counts.promoted

    @property
    def saved(self) -> int:
        """Runs that did not take place because another covered the request."""
        return self.counts.declined + self.counts.replaced + self.counts.merged
