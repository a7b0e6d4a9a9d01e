"""What operators can see of schedules, and ask of them.

A wish is written into the data of ``/leaderq/<career>/schedules``, which the leader watches. It
stands there until a leader has followed it, even if nobody leads now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from leaderq.base import clock
from leaderq.errors import BadVersion, ConfigurationError, CorruptRecord, LeaderqError, NoNode
from leaderq.schedules.record import (
    ScheduleRecord,
    ScheduleWishes,
    decode,
    decode_wishes,
    encode_wishes,
)
from leaderq.zookeeper import GetChildren, GetData, Session
from leaderq.zookeeper.writing.groups import batched

_TOGETHER = 25


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule as it was a moment ago; ``problem``: why its record cannot be read, or
    ``None``.
    """

    name: str
    record: ScheduleRecord | None
    wishes: ScheduleWishes
    problem: str | None = None

    @property
    def overdue(self) -> int:
        """How many ticks are due that the record does not account for; counted up to 1,000."""
        record = self.record
        return 0 if record is None else len(record.when.between(record.last, clock.now_ms()))


def schedules_in(session: Session, folders: Sequence[str]) -> dict[str, list[ScheduleView]]:
    """All schedules that a leader ever ran in each of ``folders``, in the order of their names;
    sends two requests for every 25 folders.
    """
    found: dict[str, list[ScheduleView]] = {}
    for some in batched(folders, _TOGETHER):
        reads = [read for folder in some for read in (GetData(folder), GetChildren(folder))]
        told: list[Any] = session.multi_read(reads)
        wishes = [_wishes(one, folder) for one, folder in zip(told[::2], some, strict=True)]
        names = [sorted(one) if isinstance(one, list) else [] for one in told[1::2]]
        paths = [
            f"{folder}/{name}" for folder, each in zip(some, names, strict=True) for name in each
        ]
        records = iter(session.multi_read(list(map(GetData, paths))) if paths else [])
        for folder, each, wanted in zip(some, names, wishes, strict=True):
            views = [_view(folder, name, next(records), wanted) for name in each]
            found[folder] = [view for view in views if view is not None]
    return found


def _wishes(read: Any, folder: str) -> dict[str, ScheduleWishes]:
    if isinstance(read, LeaderqError) and not isinstance(read, NoNode):
        raise read
    try:
        return decode_wishes(read[0], path=folder) if isinstance(read, tuple) else {}
    except CorruptRecord:
        return {}  # the leader has logged it; the next wish writes it again


def _view(
    folder: str, name: str, read: Any, wishes: Mapping[str, ScheduleWishes]
) -> ScheduleView | None:
    if isinstance(read, NoNode):
        return None  # it was forgotten in between
    if isinstance(read, LeaderqError):
        raise read
    record, problem = None, None
    try:
        record = decode(read[0], path=f"{folder}/{name}")
    except CorruptRecord as exc:
        problem = str(exc)
    return ScheduleView(name, record, wishes.get(name, ScheduleWishes()), problem)


class ScheduleOperator:
    """Reads the schedules of one career, whose records are in ``folder``, and asks for changes."""

    def __init__(self, session: Session, folder: str) -> None:
        self._session = session
        self._folder = folder

    def look(self) -> list[ScheduleView]:
        """All schedules that a leader ever ran, in the order of their names."""
        return schedules_in(self._session, [self._folder])[self._folder]

    def pause(self, name: str) -> ScheduleWishes:
        """Let no tick begin until :meth:`resume`; return the wishes from before."""
        return self._change(name, lambda wishes, _record: replace(wishes, paused=True))

    def resume(self, name: str, *, from_now: bool = False) -> ScheduleWishes:
        """End a pause; return the wishes from before. ``from_now``: also forget the last tick, so
        that ticks begin now and none counts as missed; use it after a clock that was wrong.
        """

        def resumed(wishes: ScheduleWishes, record: ScheduleRecord | None) -> ScheduleWishes:
            counted = max(wishes.restarts, record.restarts if record else 0)
            return replace(
                wishes, paused=False, restarts=counted + 1 if from_now else wishes.restarts
            )

        return self._change(name, resumed)

    def run_now(self, name: str) -> ScheduleWishes:
        """Ask the leader to do the work once now, besides the ticks; return the wishes from
        before.
        """

        def asked(wishes: ScheduleWishes, record: ScheduleRecord | None) -> ScheduleWishes:
            return replace(wishes, run=max(wishes.run, record.ran if record else 0) + 1)

        return self._change(name, asked)

    def _read(self) -> tuple[dict[str, ScheduleWishes], int]:
        read = self._session.get(self._folder)
        return _wishes(read, self._folder), read[1].version

    def _change(
        self, name: str, change: Callable[[ScheduleWishes, ScheduleRecord | None], ScheduleWishes]
    ) -> ScheduleWishes:
        while True:
            known = {view.name: view for view in self.look()}
            if name not in known:
                there = f"known: {', '.join(known)}" if known else "no leader has run one there"
                raise ConfigurationError(
                    f"there is no schedule {name!r} below {self._folder}; {there}"
                )
            wishes, version = self._read()
            before = wishes.get(name, ScheduleWishes())
            changed = {**wishes, name: change(before, known[name].record)}
            try:
                self._session.set(self._folder, encode_wishes(changed), version)
            except BadVersion:
                continue  # another operator wrote first; change what they left
            return before
