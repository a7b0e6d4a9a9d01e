"""The changes of leader that were made, and how long the work stood still at each (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from leaderq.cli.demo.ad_billing.audit import Entry


@dataclass(frozen=True)
class Change:
    """Leadership went from ``old`` to ``new``, in term ``term``, because the demo did ``kind`` to ``old``.

    Times are seconds since the epoch: ``done_at`` when the demo acted, ``inaugurated_at`` when ``new`` began its inauguration
    (``None``: its log does not say).
    """

    kind: str
    old: str
    new: str
    term: int
    done_at: float
    inaugurated_at: float | None

    @property
    def takeover_ms(self) -> float | None:
        """From the deed to the next leader's inauguration."""
        return None if self.inaugurated_at is None else max(0.0, self.inaugurated_at - self.done_at) * 1000


@dataclass(frozen=True)
class Span:
    """When a term billed its first and its last record, and how many."""

    first: float
    last: float
    bills: int


def spans(entries: Iterable[Entry]) -> dict[int, Span]:
    """The span of each term that billed something."""
    found: dict[int, Span] = {}
    for entry in entries:
        known = found.get(entry.term)
        if known is None:
            found[entry.term] = Span(entry.billed_at, entry.billed_at, 1)
        else:
            found[entry.term] = Span(min(known.first, entry.billed_at), max(known.last, entry.billed_at), known.bills + 1)
    return found


def billing_gap_ms(term: int, billed: Mapping[int, Span]) -> float | None:
    """From the last record billed before ``term`` to the first billed in it; ``None`` if one of them is missing."""
    before = [span.last for number, span in billed.items() if number < term]
    return (billed[term].first - max(before)) * 1000 if before and term in billed else None
