"""The end of the smoke script (pure): the table of gaps and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from leaderq.cli.demo.ad_billing.audit import Audit
from leaderq.testing.waiting import patience
from smoking.plugs import Gap

HEALTHY_WITHIN_S = 90.0
_HEADINGS = ("PLUG", "LED", "LEADS", "TERM", "LED AFTER", "PROMISED", "BILLING STOOD STILL")


@dataclass(frozen=True)
class Result:
    """What came of one run."""

    gaps: Sequence[Gap]
    audit: Audit
    healthy_after_s: float

    @property
    def problems(self) -> list[str]:
        """What did not hold, one sentence each."""
        late = self.healthy_after_s > HEALTHY_WITHIN_S * patience()
        slow = (
            [
                f"it took {self.healthy_after_s:.0f} s until all was healthy, and"
                f" {HEALTHY_WITHIN_S:g} s are promised"
            ]
            if late
            else []
        )
        return [*slow, *(gap.problem for gap in self.gaps if gap.problem), *self.audit.problems]


def table(gaps: Sequence[Gap]) -> list[str]:
    """The lines of the table."""
    rows = [_HEADINGS, *(_row(gap) for gap in gaps)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    formats = [f"{'<' if at < 3 else '>'}{width}" for at, width in enumerate(widths)]
    return ["  ".join(map(format, row, formats)) for row in rows]


def _row(gap: Gap) -> tuple[str, ...]:
    new = "(the same)" if gap.new == gap.old else gap.new
    return (
        gap.plug,
        gap.old,
        new,
        str(gap.term),
        _seconds(gap.led_after_s),
        _seconds(gap.promised_s),
        _seconds(gap.stood_still_s),
    )


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f} s"


def verdict(result: Result) -> list[str]:
    """The audit, and one line for all."""
    audit = result.audit
    lines = [
        f"healthy after {result.healthy_after_s:.1f} s",
        (
            f"sent {audit.fed:,}, billed {audit.billed:,}, billed twice {audit.twice}, skipped"
            f" {audit.skipped}, out of order {audit.disordered}, by a deposed leader"
            f" {audit.usurped}"
        ),
    ]
    if result.problems:
        return [*lines, "VERDICT: not everything held: " + "; ".join(result.problems)]
    return [
        *lines,
        (
            f"VERDICT: all held: every record billed once and in order, across {len(result.gaps)}"
            " plugs"
        ),
    ]
