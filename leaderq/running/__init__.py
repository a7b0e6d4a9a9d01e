"""Running a career: the runner, its budgets and signals, and the guardian process."""

from leaderq.running.runner import Runner
from leaderq.running.stages import UnitAbandoned

__all__ = ["Runner", "UnitAbandoned"]
