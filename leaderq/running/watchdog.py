"""When a guardian stops its worker (pure).

A worker that leads tells its guardian until when its lease is trusted, and when its last unit of
work has returned. Nobody else can lead earlier than 5T/24 after the end of the lease (T: session
time-out; :mod:`leaderq.zookeeper.proof` says why). Before that, code that does not return by itself
is killed:

=============================  ======================  =========================================
what runs past its end         SIGTERM, once           SIGKILL
=============================  ======================  =========================================
a unit, past its lease         T/24 after it           T/8 after it
``handOver``, past the lease   no                      T/8 after it
planned end, past its budget   a grace after it        two graces after it
a unit, after a thaw           no                      0.08 s after the thaw, not before the above
``handOver``, after a thaw     no                      T/4 after the thaw
=============================  ======================  =========================================

The reason that the worker tells for the end plays no part: a lease that is over is over, whether
the worker knows that, denies it or cannot say so (a C call holds the GIL). A deposing reason sets
the end of the lease to the instant at which the worker learned of it; the hand-over budget is for
planned ends.

A thaw is the moment at which a stopped worker runs again, or at which the guardian finds that the
guardian itself was stopped (perhaps with the whole host): another leader may have begun meanwhile.
While the worker is stopped it does no harm, and the guardian leaves it alone. What the worker has
started may run on, and is killed at the time at which the worker would be killed.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

AFTER_THAW_S = 0.08
"""When a unit is killed after a thaw that comes after the end of its lease: it is promised to end
within 0.1 s, and the guardian and its signal take some of that (102.8 ms were seen with 0.1).
"""
STALLED_S = 0.25
"""A look that comes this much later than planned means that the guardian did not run either."""


class Intervention(Enum):
    """What the guardian must do now."""

    LEAVE_ALONE = "leave alone"
    TERMINATE = "terminate"
    KILL = "kill"
    KILL_STARTED = "kill what it has started"


class LeaseReport(NamedTuple):
    """A worker's report while it holds a term; times are on :func:`leaderq.base.clock.now_s`.

    ``lease_until_s``: the end of the lease. ``budget_until_s``: the end of the hand-over's budget,
    if the term is ending as planned. ``grace_s``: T/24. ``handing_over``: the last unit has
    returned.
    """

    term: int
    lease_until_s: float
    grace_s: float
    budget_until_s: float | None = None
    handing_over: bool = False

    @property
    def ends_s(self) -> float:
        """When the worker's code should have returned."""
        if self.budget_until_s is None:
            return self.lease_until_s
        return min(self.lease_until_s, self.budget_until_s)

    @property
    def terminate_s(self) -> float | None:
        """When SIGTERM is due; ``None``: never, because the code is handing over."""
        if self.lease_until_s > self.ends_s:
            return self.ends_s + self._budget_grace_s
        return None if self.handing_over else self.ends_s + self.grace_s

    @property
    def kill_s(self) -> float:
        """When SIGKILL is due, if the worker was never stopped."""
        at_s = self.lease_until_s + 3 * self.grace_s
        if self.budget_until_s is not None:
            at_s = min(at_s, self.budget_until_s + 2 * self._budget_grace_s)
        return at_s

    @property
    def _budget_grace_s(self) -> float:
        return max(self.grace_s, 0.5)  # the runner leaves by itself when the budget is over


class Watchdog(NamedTuple):
    """What the guardian remembers between two looks.

    ``due_s``: when the next look is due. ``thawed_s``: when the worker or the host last began to
    run again. ``asked_term``: the term for which SIGTERM was sent. ``cleared_term``: the term for
    which the processes of a stopped worker were killed.
    """

    report: LeaseReport | None = None
    due_s: float | None = None
    stopped: bool = False
    thawed_s: float = float("-inf")
    asked_term: int | None = None
    cleared_term: int | None = None

    def heard(self, report: LeaseReport | None) -> Watchdog:
        """Take note of the worker's newest report; ``None``: the worker holds no term."""
        return self._replace(report=report)

    def look(self, now_s: float, *, stopped: bool) -> tuple[Watchdog, Intervention]:
        """Return what to do at ``now_s``, and the new memory. ``stopped``: the worker's process is
        stopped.
        """
        stalled = self.due_s is not None and now_s - self.due_s > STALLED_S
        thawed_s = now_s if stalled or (self.stopped and not stopped) else self.thawed_s
        seen = self._replace(stopped=stopped, thawed_s=thawed_s)
        intervention = seen._judge(now_s)
        term = None if self.report is None else self.report.term
        if intervention is Intervention.TERMINATE:
            seen = seen._replace(asked_term=term)
        elif intervention is Intervention.KILL_STARTED:
            seen = seen._replace(cleared_term=term)
        return seen._replace(due_s=seen._next_look_s(now_s)), intervention

    def _judge(self, now_s: float) -> Intervention:
        if self.report is None:
            return Intervention.LEAVE_ALONE
        if self.stopped:
            is_due = now_s >= self.report.kill_s and self.cleared_term != self.report.term
            return Intervention.KILL_STARTED if is_due else Intervention.LEAVE_ALONE
        if now_s >= self._kill_s(self.report):
            return Intervention.KILL
        terminate_s = self._terminate_s(self.report)
        if terminate_s is not None and now_s >= terminate_s:
            return Intervention.TERMINATE
        return Intervention.LEAVE_ALONE

    def _kill_s(self, report: LeaseReport) -> float:
        if self.thawed_s < report.ends_s:
            return report.kill_s
        is_late = self.thawed_s >= report.kill_s  # another candidate may lead already
        after_s = 6 * report.grace_s if report.handing_over and is_late else AFTER_THAW_S
        return max(report.kill_s, self.thawed_s + after_s)

    def _terminate_s(self, report: LeaseReport) -> float | None:
        if self.asked_term == report.term or self.thawed_s >= report.ends_s:
            return None
        return report.terminate_s

    def _next_look_s(self, now_s: float) -> float | None:
        """When to look again without being woken; ``None``: only after the next report."""
        report = self.report
        if report is None:
            return None
        if self.stopped:
            # a signal tells when it runs again; this look is in case the signal is lost
            return now_s + AFTER_THAW_S / 2
        times = [self._kill_s(report), self._terminate_s(report)]
        return min((at for at in times if at is not None and at > now_s), default=now_s + 0.01)
