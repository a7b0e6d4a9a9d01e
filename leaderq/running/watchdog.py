"""When a guardian stops its worker (pure).

A worker that leads tells its guardian until when its lease is trusted. If that instant passes and the worker has neither
prolonged it nor said that the term is over, its Python threads do not run (a C call holds the GIL, say) while its code still
might: it must be dead before another leader can start, T/3 after the end of the lease. If it said so, but its code has not
returned within the hand-over budget and a grace, it is stopped too.

Time counts only while both processes run: a worker that is stopped (SIGSTOP) or a host that was suspended does no harm meanwhile,
and a thawed worker notices by itself, hands over, and lives.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum


class Intervention(Enum):
    """What the guardian is to do now."""

    LEAVE_ALONE = "leave alone"
    TERMINATE = "terminate"
    KILL = "kill"


@dataclass(frozen=True, slots=True)
class LeaseReport:
    """What a worker says while it holds a term.

    ``until_s`` (on :func:`leaderq.clock.now_s`): the end of its lease while the term is on; once it is ending, the end of the
    hand-over's budget. ``grace_s``: how long the worker may be late before it is stopped.
    """

    term: int
    until_s: float
    grace_s: float
    ending: bool = False


@dataclass(frozen=True, slots=True)
class Watchdog:
    """The guardian's memory: the newest report, for how long the worker has been overdue *while running*, and when it looked."""

    report: LeaseReport | None = None
    looked_s: float = 0.0
    overdue_s: float = 0.0

    def heard(self, report: LeaseReport | None) -> Watchdog:
        """The worker has reported; ``None``: it holds no term."""
        return Watchdog(report, self.looked_s)

    def look(self, now_s: float, *, stopped: bool) -> tuple[Watchdog, Intervention]:
        """The verdict at ``now_s``; ``stopped`` says that the worker's process is stopped and cannot act."""
        report = self.report
        if report is None or now_s < report.until_s:
            return replace(self, looked_s=now_s, overdue_s=0.0), Intervention.LEAVE_ALONE
        since_look_s = now_s - max(self.looked_s, report.until_s)
        # A look that comes much too late means that the guardian, and with it perhaps the whole host, did not run either.
        counted_s = 0.0 if stopped or since_look_s > report.grace_s else since_look_s
        watch = replace(self, looked_s=now_s, overdue_s=self.overdue_s + counted_s)
        if watch.overdue_s >= 2 * report.grace_s:
            return watch, Intervention.KILL
        return watch, Intervention.TERMINATE if watch.overdue_s >= report.grace_s else Intervention.LEAVE_ALONE

    def next_look_s(self, now_s: float) -> float | None:
        """When to look again; ``None``: not before the next report."""
        if self.report is None:
            return None
        return max(self.report.until_s, now_s + self.report.grace_s / 4)
