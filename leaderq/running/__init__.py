"""Running a career: the runner, its budgets and signals, and the guardian process.

Names are loaded when they are first used, because the guardian needs very few of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaderq.base.lazy import exported

if TYPE_CHECKING:
    from leaderq.errors import UnitAbandoned as UnitAbandoned
    from leaderq.running.async_career import AsyncLeaderCareer as AsyncLeaderCareer
    from leaderq.running.async_career import AsyncScheduledCareer as AsyncScheduledCareer
    from leaderq.running.runner import Runner as Runner

__getattr__, __all__ = exported(
    __name__,
    {
        "async_career": "AsyncLeaderCareer AsyncScheduledCareer",
        "runner": "Runner",
        "stages": "UnitAbandoned",
    },
)
