"""Running a career: the runner, its budgets and signals, and the guardian process."""

from leaderq.running.abandonment import UnitAbandoned
from leaderq.running.runner import Runner

__all__ = ["Runner", "UnitAbandoned"]
