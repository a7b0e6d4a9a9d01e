"""The screen and the outcome of the demo. The screen has lines that stay and, on a terminal, a few
lines below them that are drawn again and again. The outcome has the changes of leader, the audit of
the ledger, and a verdict (pure).

Without a terminal, no control characters are written, and the lines below become one plain line
every two seconds.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import click

from leaderq.base import clock
from leaderq.cli.demo.ad_billing.audit import Audit
from leaderq.cli.demo.ad_billing.ledger import Entry
from leaderq.cli.output import write_table

_PLAIN_INTERVAL_S = 2.0


class Screen:
    """Writes to standard output. Thread-safe."""

    def __init__(self) -> None:
        self._live = sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"
        self._drawn = 0
        self._last: Sequence[str] = ()
        self._next_plain_s = 0.0
        self._began_s = clock.now_s()
        self._lock = threading.Lock()

    def tell(self, line: str) -> None:
        """Write a line that stays, with the time since the demo began."""
        self.write(f"{clock.now_s() - self._began_s:6.1f} s  {line}")

    def write(self, text: str) -> None:
        with self._lock:
            self._erase()
            click.echo(text, color=self._live)
            self._draw(self._last)

    def show(self, lines: Sequence[str]) -> None:
        """Draw ``lines`` as the live part of the screen, in place of the former ones."""
        with self._lock:
            if self._live:
                self._erase()
                self._draw(lines)
            elif lines and clock.now_s() >= self._next_plain_s:
                self._next_plain_s = clock.now_s() + _PLAIN_INTERVAL_S
                at = f"{clock.now_s() - self._began_s:6.1f} s"
                click.echo(f"{at}  {'; '.join(lines)}")
            self._last = lines if self._live else ()

    def _erase(self) -> None:
        if self._drawn:
            sys.stdout.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0

    def _draw(self, lines: Sequence[str]) -> None:
        if not self._live:
            sys.stdout.flush()
            return
        # A line that wraps would take two, and be erased by half.
        width = shutil.get_terminal_size().columns - 1
        for line in lines:
            sys.stdout.write(line[:width] + "\n")
        self._drawn = len(lines)
        sys.stdout.flush()


@dataclass(frozen=True)
class Change:
    """Leadership went from ``old`` to ``new``, in term ``term``, because the demo did ``kind`` to
    ``old``.

    Times are seconds since the epoch: ``done_at`` when the demo acted, ``inaugurated_at`` when
    ``new`` began its inauguration (``None``: its log does not say).
    """

    kind: str
    old: str
    new: str
    term: int
    done_at: float
    inaugurated_at: float | None

    @property
    def takeover_ms(self) -> float | None:
        """The time from the demo's act to the inauguration of ``new``; ``None`` if the log does not
        tell it.
        """
        if self.inaugurated_at is None:
            return None
        return max(0.0, self.inaugurated_at - self.done_at) * 1000


@dataclass(frozen=True)
class Span:
    """The times of a term's first and last bill (seconds since the epoch), and the number of its
    bills.
    """

    first: float
    last: float
    bills: int


def spans(entries: Iterable[Entry]) -> dict[int, Span]:
    """The span of each term that billed something."""
    found: dict[int, Span] = {}
    for entry in entries:
        at = entry.billed_at
        known = found.get(entry.term, Span(at, at, 0))
        found[entry.term] = Span(min(known.first, at), max(known.last, at), known.bills + 1)
    return found


def billing_gap_ms(term: int, billed: Mapping[int, Span]) -> float | None:
    """The time from the last record billed before ``term`` to the first one billed in it; ``None``
    if one of the two is missing.
    """
    before = [span.last for number, span in billed.items() if number < term]
    return (billed[term].first - max(before)) * 1000 if before and term in billed else None


@dataclass(frozen=True)
class Outcome:
    """The results of the demo. ``broken``: the promises that were broken, one sentence each.
    ``wanted``: how many changes of leader there should be.
    """

    changes: Sequence[Change]
    billed: Mapping[int, Span]
    audit: Audit
    redelivered: int
    wanted: int
    broken: Sequence[str] = ()

    @property
    def problems(self) -> list[str]:
        """All failures, one sentence each; empty if the demo succeeded."""
        found = [*self.broken, *self.audit.problems]
        if len(self.changes) < self.wanted:
            found.append(f"only {len(self.changes)} of {self.wanted} changes of leader took place")
        found += [
            f"{change.new} billed nothing in term {change.term}"
            for change in self.changes
            if change.term not in self.billed
        ]
        return found


def write_changes(outcome: Outcome) -> None:
    columns = ("CHANGE", "FROM", "TO", "TERM", "TO INAUGURATION", "BILLING STOOD STILL")
    rows = []
    for change in outcome.changes:
        gap = billing_gap_ms(change.term, outcome.billed)
        times = (f"{ms:,.0f} ms" if ms is not None else None for ms in (change.takeover_ms, gap))
        rows.append((change.kind, change.old, change.new, change.term, *times))
    write_table(columns, rows)


def figures(outcome: Outcome) -> list[str]:
    audit = outcome.audit
    return [
        f"records fed            {audit.fed:>9,}",
        f"records billed         {audit.billed:>9,}",
        f"billed twice           {audit.twice:>9,}",
        f"skipped                {audit.skipped:>9,}",
        f"out of order           {audit.disordered:>9,}",
        f"by a deposed leader    {audit.usurped:>9,}",
        f"delivered again        {outcome.redelivered:>9,}  (noticed by the ledger, billed once)",
    ]


def verdict(outcome: Outcome) -> str:
    """One line that says whether all promises held."""
    if outcome.problems:
        return "VERDICT: not everything held: " + "; ".join(outcome.problems)
    held = "every record billed exactly once and in order"
    return f"VERDICT: all held: {held}, across {len(outcome.changes)} changes of leader"
