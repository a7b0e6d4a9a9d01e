"""Everything that the page and ``leaderq top`` show, as it was read at one moment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from leaderq.admin.careers import CareerState, career_states
from leaderq.admin.queue_states import Contents, QueueState, QueueStates
from leaderq.base import clock
from leaderq.election import Observer
from leaderq.errors import told
from leaderq.zookeeper import Session

log = logging.getLogger(__name__)
KEPT_FRAMES = 900
"""The most readings that are kept for plots: half an hour of looking at the default pace."""
_KEPT_MS = 3_600_000


@dataclass(frozen=True)
class PlottedFigures:
    """The figures that plots need of one reading: each queue's depth, each career's lag."""

    at_ms: int
    depths: Mapping[str, int]
    lags: Mapping[str, int]


@dataclass(frozen=True)
class PageSnapshot:
    """Everything that was read at ``at_ms``. ``number`` counts readings, failed ones included. If
    the last reading failed, ``problem`` says why, ``failing_since_ms`` since when, and the other
    values are older.
    """

    number: int = 0
    at_ms: int = 0
    careers: tuple[CareerState, ...] = ()
    queues: tuple[QueueState, ...] = ()
    contents: Mapping[str, Contents] = field(default_factory=dict)
    frames: tuple[PlottedFigures, ...] = ()
    problem: str | None = None
    failing_since_ms: int | None = None

    def career(self, name: str) -> CareerState | None:
        return next((one for one in self.careers if one.career == name), None)

    def queue(self, path: str) -> QueueState | None:
        return next((one for one in self.queues if one.path == path), None)

    def depths(self, path: str) -> list[tuple[int, float]]:
        return [(one.at_ms, one.depths[path]) for one in self.frames if path in one.depths]

    def lags(self, career: str) -> list[tuple[int, float]]:
        return [(one.at_ms, one.lags[career]) for one in self.frames if career in one.lags]


ReadAgain = Callable[[PageSnapshot, frozenset[str]], PageSnapshot]


def reading(session: Session, root: str, patterns: Sequence[str]) -> ReadAgain:
    """Return a function that reads all careers below ``root`` and the queues of ``patterns``. Its
    arguments are the last snapshot, and the queues whose contents are wanted.
    """
    states = QueueStates(session, patterns)

    def read(before: PageSnapshot, wanted: frozenset[str]) -> PageSnapshot:
        names = Observer.careers(session, root=root)
        careers = tuple(career_states(session, root, names))
        queues, contents = states.read(wanted)
        return after_reading(before, careers, tuple(queues), contents, clock.now_ms())

    return read


def read_again(
    read: ReadAgain, before: PageSnapshot, wanted: frozenset[str] = frozenset()
) -> PageSnapshot:
    """Read the next snapshot. If that fails, return ``before`` with the ``problem``."""
    try:
        return read(before, wanted)
    except Exception as error:  # noqa: BLE001  (whatever it is, it is shown)
        if before.problem is None:
            log.warning("careers and queues cannot be read error=%s", told(error))
        return after_failure(before, told(error), clock.now_ms())


def after_reading(
    before: PageSnapshot,
    careers: tuple[CareerState, ...],
    queues: tuple[QueueState, ...],
    contents: Mapping[str, Contents],
    at_ms: int,
) -> PageSnapshot:
    """The snapshot after a reading that has succeeded."""
    lags = {one.career: one.drain.report.lag for one in careers if one.drain and one.drain.fresh}
    frame = PlottedFigures(at_ms, {one.path: one.depth for one in queues}, lags)
    kept = tuple(one for one in before.frames if at_ms - _KEPT_MS < one.at_ms < at_ms)
    frames = (*kept[1 - KEPT_FRAMES :], frame)
    return PageSnapshot(before.number + 1, at_ms, careers, queues, contents, frames)


def after_failure(before: PageSnapshot, problem: str, at_ms: int) -> PageSnapshot:
    """The snapshot after a reading that has failed: the values of ``before``, and since when
    readings fail.
    """
    since = before.failing_since_ms or at_ms
    return replace(before, number=before.number + 1, problem=problem, failing_since_ms=since)
