"""What probes, load balancers and people ask a candidate's process (``/livez``, ``/readyz``,
``/leader``, ``/status``); decided on values. ``docs/design/observability.md`` has the answers.

The candidate's thread counts as dead if it has not answered for ``DEAD_AFTER_S``, or for 3T if that
is longer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Any

from leaderq.base import clock
from leaderq.events import CareerError, CoolingOff, DrainProgress, EventBus, Stage, TermEnded

DEAD_AFTER_S = 60.0


@dataclass(frozen=True)
class TermState:
    """A term at one moment; ``stage`` is ``None`` before its first stage."""

    number: int
    stage: Stage | None
    lease_s: float
    paused: bool
    ending: bool


@dataclass(frozen=True)
class RunnerState:
    """A runner at one moment; ``role`` and ``session`` are words.

    ``silent_s``: how long the candidate's thread has not answered. ``units``: how many units of
    work have returned, in all terms.
    """

    career: str
    candidate: str
    session: str
    timeout_s: float
    role: str
    silent_s: float
    stopping: bool
    ended: bool
    units: int
    term: TermState | None


def why_dead(state: RunnerState) -> str | None:
    """Why the process should be restarted; ``None`` if it should not."""
    if state.ended:
        return "the runner has ended, and the process has not"
    if state.silent_s > max(DEAD_AFTER_S, 3 * state.timeout_s):
        return "the candidate's thread does not answer: this process would never lead again"
    return None


def why_all_dead(states: Sequence[RunnerState]) -> str | None:
    """Why the process that runs all these careers should be restarted; ``None`` if it should
    not.
    """
    left = [state for state in states if not state.ended] or states
    return next(filter(None, map(why_dead, left)), None)


def why_unready(state: RunnerState, cool_off_s: float = 0.0) -> str | None:
    """Why the process neither leads nor can lead now; ``None`` if it leads or can lead.
    ``cool_off_s``: how many seconds of a cool-off are left.
    """
    if state.stopping or state.ended:
        return "it is stopping"
    if state.session != "connected":
        return f"the ZooKeeper session is {state.session}"
    if cool_off_s > 0:
        return f"it cools off after a failed term, {cool_off_s:.0f} s more"
    return _UNREADY.get(state.role)


_UNREADY = {
    "idle": "it does not stand for election yet",
    "enlisting": "it is not in the line of candidates yet",
    "suspect": "ZooKeeper has not acknowledged a write lately",
    "ending": "its term is ending",
    "ousted": "it was deposed, and its code has not returned yet",
    "releasing": "it releases its place",
}


def why_no_leader(state: RunnerState) -> str | None:
    """Why this process does not work as the leader now; ``None`` if it does."""
    term = state.term
    if term is None:
        return "it does not lead"
    if term.ending or term.lease_s <= 0:
        return f"term {term.number} is ending"
    if term.stage is not Stage.EXECUTION:
        return f"term {term.number} is not inaugurated yet"
    return None


class Health:
    """Answers questions about the runner that ``look`` describes, and remembers past ``events``.

    Each question calls ``look``, which must not wait.
    """

    def __init__(self, events: EventBus, look: Callable[[], RunnerState]) -> None:
        self.events = events
        self.look = look
        self._cooling: tuple[CoolingOff, float] | None = None
        self._last_term: dict[str, Any] | None = None
        self._error: tuple[int, str] | None = None
        self._progress: DrainProgress | None = None
        events.subscribe(CoolingOff, self._cools_off)
        events.subscribe(CareerError, self._raised)
        events.subscribe(TermEnded, self._ended)
        events.subscribe(DrainProgress, self._drained)

    def why_unready(self) -> str | None:
        return why_unready(self.look(), self._cool_off_s())

    def why_no_leader(self) -> str | None:
        return why_no_leader(self.look())

    def status(self) -> dict[str, Any]:
        """Everything that is known. Of an error it names only the class: the text belongs in the
        log.
        """
        state = self.look()
        cooling, cool_off_s, progress = self._cooling, self._cool_off_s(), self._progress
        found = asdict(state)
        found["live"] = why_dead(state) is None
        found["ready"] = why_unready(state, cool_off_s) is None
        found["leader"] = why_no_leader(state) is None
        found["why"] = why_dead(state) or why_unready(state, cool_off_s)
        found["cool_off"] = found["kafka"] = None
        if cooling is not None and cool_off_s > 0:
            why = {"failures": cooling[0].failures, "why": cooling[0].why}
            found["cool_off"] = {"left_s": cool_off_s, **why}
        if progress is not None and state.term is not None and progress.term == state.term.number:
            found["kafka"] = {"lag": progress.lag, "partitions": dict(progress.partitions)}
        found["last_term"] = self._last_term
        return found

    def _cool_off_s(self) -> float:
        cooling = self._cooling
        return 0.0 if cooling is None else max(0.0, cooling[0].seconds + cooling[1] - clock.now_s())

    def _cools_off(self, event: CoolingOff) -> None:
        self._cooling = event, clock.now_s()

    def _raised(self, event: CareerError) -> None:
        self._error = event.term, type(event.error).__name__

    def _ended(self, event: TermEnded) -> None:
        error = self._error
        self._last_term = {
            "number": event.term,
            "ended": _told(clock.calendar_s()),
            "reason": event.reason.value,
            "clean": event.clean,
            "error": error[1] if error is not None and error[0] == event.term else None,
        }

    def _drained(self, event: DrainProgress) -> None:
        self._progress = event


def _told(at_s: float) -> str:
    return datetime.fromtimestamp(at_s, timezone.utc).isoformat(timespec="milliseconds")
