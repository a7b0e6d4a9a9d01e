"""The base class of careers that work only by the clock."""

from __future__ import annotations

from leaderq.career import LeaderCareer
from leaderq.schedules.definition import only_waiting
from leaderq.term import Term

_A_WHILE_S = 60.0


class ScheduledCareer(LeaderCareer):
    """A career without units of its own: write methods with ``@schedule``, and no ``execute``."""

    @only_waiting
    def execute(self, term: Term) -> None:
        """Wait until the runner has something to do, between two ticks."""
        term.wait(_A_WHILE_S)
