"""Work by the clock. Each tick is recorded once, by a fenced write of the leader.

``plan`` and the record are pure; ``timetable`` runs the ticks in a term.
``docs/design/schedules.md`` has the reasons.
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
