"""Work by the clock: ticks that are each recorded once, by the leader's fenced write.

``plan`` and the record are pure; ``timetable`` is the edge that runs ticks in a term. The reasons
stand in ``docs/design/schedules.md``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from leaderq.base.lazy import exported

if TYPE_CHECKING:
    from leaderq.schedules.career import ScheduledCareer as ScheduledCareer
    from leaderq.schedules.definition import schedule as schedule
    from leaderq.schedules.tick import AsyncTick as AsyncTick
    from leaderq.schedules.tick import Tick as Tick

__getattr__, __all__ = exported(
    __name__, {"career": "ScheduledCareer", "definition": "schedule", "tick": "AsyncTick Tick"}
)
