"""What operators see of schedules, and ask of them.

A wish is written into the data of ``/leaderq/<career>/schedules``, which the leader watches; it
stands until it is followed, also if nobody leads now.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from leaderq import clock
from leaderq.errors import BadVersion, ConfigurationError, CorruptRecord, NoNode
from leaderq.schedules.record import (
    ScheduleRecord,
    ScheduleWishes,
    decode,
    decode_wishes,
    encode_wishes,
)
from leaderq.zookeeper import GetData, Session


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """A schedule as it stood a moment ago; ``problem``: why its record cannot be read."""

    name: str
    record: ScheduleRecord | None
    wishes: ScheduleWishes
    problem: str | None = None

    @property
    def overdue(self) -> int:
        """How many ticks are due and not accounted for; counted up to 1,000."""
        record = self.record
        return 0 if record is None else len(record.when.between(record.last, clock.now_ms()))


class ScheduleOperator:
    """Looks at the schedules of one career, whose records are in ``folder``; asks for changes."""

    def __init__(self, session: Session, folder: str) -> None:
        self._session = session
        self._folder = folder

    def look(self) -> list[ScheduleView]:
        """All schedules that a leader ever ran, by name."""
        try:
            names = sorted(self._session.children(self._folder))
            wishes = self._read()[0]
        except NoNode:
            return []
        paths = [f"{self._folder}/{name}" for name in names]
        found = self._session.multi_read([GetData(path) for path in paths]) if paths else []
        views = []
        for name, path, each in zip(names, paths, found, strict=True):
            record, problem = None, None
            try:
                if isinstance(each, Exception):
                    raise each
                assert isinstance(each, tuple)  # a GetData is answered by data and metadata
                record = decode(each[0], path=path)
            except NoNode:
                continue
            except CorruptRecord as exc:
                problem = str(exc)
            views.append(ScheduleView(name, record, wishes.get(name, ScheduleWishes()), problem))
        return views

    def pause(self, name: str) -> ScheduleWishes:
        """Let no tick begin until :meth:`resume`; returns the wishes before."""
        return self._change(name, lambda wishes, _record: replace(wishes, paused=True))

    def resume(self, name: str, *, from_now: bool = False) -> ScheduleWishes:
        """End a pause; ``from_now``: forget which tick was the last, for a calendar that was wrong,
        so that ticks begin now, with none missed. Returns the wishes before.
        """

        def resumed(wishes: ScheduleWishes, record: ScheduleRecord | None) -> ScheduleWishes:
            counted = max(wishes.restarts, record.restarts if record else 0)
            return replace(
                wishes, paused=False, restarts=counted + 1 if from_now else wishes.restarts
            )

        return self._change(name, resumed)

    def run_now(self, name: str) -> ScheduleWishes:
        """Let the leader do the work once more, now; its ticks stay as they are."""

        def asked(wishes: ScheduleWishes, record: ScheduleRecord | None) -> ScheduleWishes:
            return replace(wishes, run=max(wishes.run, record.ran if record else 0) + 1)

        return self._change(name, asked)

    def _read(self) -> tuple[dict[str, ScheduleWishes], int]:
        data, stat = self._session.get(self._folder)
        try:
            return decode_wishes(data, path=self._folder), stat.version
        except CorruptRecord:
            return {}, stat.version  # the leader has logged it; the next wish writes it again

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
