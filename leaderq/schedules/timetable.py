"""Runs the ticks of one career in its terms, as :mod:`leaderq.schedules.plan` decides.

The record in ZooKeeper is authoritative. Only the leader writes it, fenced by its term, and at the
expected version. Work on a tick begins after the write that begins the tick was acknowledged; so a
deposed leader begins no tick, and the next leader knows of each tick that was begun.

Everything here is called on the career's thread, except the watch, which only sets a flag.

On each failure: if somebody has changed the record by hand, the term fails, and the next term reads
the new record. If the record cannot be read at all, that is logged, and a new record begins now. If
the work raises, the tick has failed; if the term is ending, the tick was interrupted instead, and
its record stays as it is, as after a crash.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from leaderq.base import clock
from leaderq.base.arguments import coroutine_function, plain_function, require
from leaderq.errors import (
    ConnectionLost,
    CorruptRecord,
    Deposed,
    LeaderqError,
    NoNode,
    told,
)
from leaderq.events import CareerError, EventBus, Stage, TickBegan, TickEnded, TicksPassedOver
from leaderq.observability.figures import FigureSource, offer_figures
from leaderq.schedules.definition import Definition, definitions_of, only_waits
from leaderq.schedules.plan import Step, ended, first_record, plan
from leaderq.schedules.record import (
    ScheduleRecord,
    ScheduleWishes,
    TickOutcome,
    TickRun,
    decode,
    decode_wishes,
    encode,
)
from leaderq.schedules.stored import AGAIN_S, StoredRecord
from leaderq.schedules.tick import AsyncTick, Tick, recorded
from leaderq.term import Term
from leaderq.zookeeper import (
    GetData,
    Operation,
    Session,
    WatchEvent,
    WatchKind,
)

log = logging.getLogger(__name__)

_LOOK_S = 0.5
_CLOCK_OFF_MS = 60_000
_LONGEST_ERROR = 240
Perform = Callable[[Callable[[Any], object]], object]


_COUNTED = ("done", "failed", "interrupted", "lost", "passed", "work_s")


@dataclass(eq=False)
class _Slot:
    """One schedule of the career, with its record as this leader last read or wrote it."""

    definition: Definition
    work: Callable[[Any], object]
    stored: StoredRecord
    record: ScheduleRecord | None = None
    seen_s: float = 0.0
    """When ``record.last`` was read or written, by the elapsed clock."""
    figures: dict[str, float] = field(default_factory=lambda: dict.fromkeys(_COUNTED, 0.0))

    def now(self) -> int:
        """The time, in milliseconds, by which the schedule runs: that of the calendar. A schedule
        with an interval waits at most that interval, even if the calendar was set back.
        """
        now = clock.now_ms()
        if self.record is not None and self.definition.when.cron is None:
            elapsed = round((clock.now_s() - self.seen_s) * 1000)
            now = max(now, self.record.last + elapsed)
        return now

    def due_s(self) -> float:
        """In how many seconds a tick, or a change of the record, is due."""
        if self.record is None or self.record.running is not None:
            return 0.0
        if self.record.when != self.definition.when:
            return 0.0
        following = self.record.next
        return float("inf") if following is None else (following - self.now()) / 1000

    def is_running(self, run: TickRun) -> bool:
        return self.record is not None and self.record.running == run

    def read_figures(self) -> Mapping[str, float]:
        record = self.record
        if record is None or record.next is None:
            return self.figures
        overdue_s = max(0.0, (clock.now_ms() - record.next) / 1000)
        return {**self.figures, "overdue_s": overdue_s, "next_s": record.next / 1000}


@dataclass(eq=False, slots=True)
class _Begun:
    """A tick that the career works on; ``run`` is what its record says of it."""

    slot: _Slot
    tick: Tick
    run: TickRun
    began_s: float


class Timetable:
    """The schedules of ``career``, which runs as ``candidate``; their znodes are below ``folder``,
    whose parent ``shared`` others use, too.
    """

    def __init__(
        self,
        career: object,
        definitions: Sequence[Definition],
        session: Session,
        folder: str,
        shared: str,
        *,
        name: str,
        candidate: str,
        events: EventBus,
    ) -> None:
        self._session = session
        self._folder, self._shared = folder, shared
        self._career = name
        self._candidate = candidate
        self._events = events
        self.is_all = only_waits(getattr(type(career), "execute", None))
        """Whether the career has no units besides its ticks."""
        self._slots = [
            _Slot(one, getattr(career, one.name), StoredRecord(session, f"{folder}/{one.name}"))
            for one in definitions
        ]
        self._wishes: dict[str, ScheduleWishes] = {}
        self._term: Term | None = None
        self._changed = True
        self._look_at_s = 0.0
        self._ticked = False
        for slot in self._slots:
            label = f"{name}/{slot.definition.name}"
            offer_figures(FigureSource.SCHEDULE, label, slot, _Slot.read_figures)

    # ---- what the runner asks --------------------------------------------------------------------

    def turn(self, term: Term, perform: Perform) -> bool:
        """Run the tick that is due, if there is one; return whether there was one. If the career
        has units of its own, ticks and units take turns. ``perform`` calls the career's method,
        with the term or its async counterpart, and returns when the work is done.
        """
        if self._ticked and not self.is_all:
            self._ticked = False
            return False
        begun = self._next(term)
        if begun is None:
            return False
        self._ticked = True
        try:
            perform(_work_on(begun.tick, begun.slot.work))
        except Deposed:
            self._tell_end(begun, "interrupted")
            raise
        except Exception as exc:  # noqa: BLE001  (published; a failed tick ends no term)
            self._end(begun, exc)
        except BaseException:
            self._tell_end(begun, "interrupted")
            raise
        else:
            self._end(begun)
        return True

    def wait(self, term: Term) -> None:
        """Wait until something may be due, but only for a moment, because the calendar may be set
        at any time.
        """
        due_s = AGAIN_S if term is not self._term else min(one.due_s() for one in self._slots)
        term.wait(min(max(due_s, 0.001), _LOOK_S))

    def _next(self, term: Term) -> _Begun | None:
        """Begin the tick that is due, if there is one: write that into its record."""
        now_s = clock.now_s()
        if term is not self._term or self._changed or now_s >= self._look_at_s:
            try:
                self._read(term)
            except ConnectionLost:
                return None
        for slot in list(self._slots):
            begun = self._step(term, slot) if self._may_be_due(slot) else None
            if begun is not None:
                self._slots.remove(slot)  # the others are asked first now
                self._slots.append(slot)
                return begun
        return None

    def _end(self, begun: _Begun, error: Exception | None = None) -> None:
        """Record the end of a tick; ``error`` is what its work raised, or ``None``."""
        outcome = TickOutcome.DONE if error is None else TickOutcome.FAILED
        if not begun.slot.is_running(begun.run):  # recorded by tick.write
            self._tell_end(begun, TickOutcome.DONE.value, error)
            return
        if error is not None and begun.tick.term.ending.is_set():
            self._tell_end(begun, "interrupted", error)
            return
        try:
            self._record_end(begun.tick.term, begun.slot, outcome, error)
        except LeaderqError:
            self._tell_end(begun, "interrupted", error)
            raise
        self._tell_end(begun, outcome.value, error)

    # ---- one schedule ----------------------------------------------------------------------------

    def _may_be_due(self, slot: _Slot) -> bool:
        wishes, record = self._wishes_of(slot), slot.record
        if record is None:
            return False
        asked = wishes.run > record.ran or wishes.restarts > record.restarts
        waits = wishes.paused and record.running is not None
        if waits and record.next is not None and record.next > slot.now():
            return asked and wishes.restarts > record.restarts
        return asked or slot.due_s() <= 0

    def _wishes_of(self, slot: _Slot) -> ScheduleWishes:
        return self._wishes.get(slot.definition.name, ScheduleWishes())

    def _step(self, term: Term, slot: _Slot) -> _Begun | None:
        assert slot.record is not None  # it was read
        now, definition = slot.now(), slot.definition
        step = plan(
            slot.record,
            definition,
            self._wishes_of(slot),
            now,
            term=term.number,
            candidate=self._candidate,
        )
        if step.record != slot.record:
            self._store(term, slot, step.record)
            self._tell_passed(term, slot, step)
        run = step.record.running
        if not step.begins or run is None:
            return None
        term.check()  # the process may have stood still since the write was sent
        tick = Tick(
            definition.name,
            definition.when.moment(run.at),
            term,
            run.missed,
            run.attempt,
            run.key is not None,
            partial(self._complete, term, slot, run),
        )
        slot.figures["late_s"] = late_s = max(0.0, (now - run.at) / 1000)
        who = self._career, self._candidate, term.number, tick.name, tick.at.isoformat()
        self._events.publish(TickBegan(*who, tick.attempt, tick.missed, late_s))
        return _Begun(slot, tick, run, clock.now_s())

    def _complete(
        self, term: Term, slot: _Slot, run: TickRun, ops: Sequence[Operation]
    ) -> list[Any]:
        if not slot.is_running(run):
            raise recorded(slot.definition.name)
        return self._record_end(term, slot, TickOutcome.DONE, None, ops)

    def _record_end(
        self,
        term: Term,
        slot: _Slot,
        outcome: TickOutcome,
        error: Exception | None,
        ops: Sequence[Operation] = (),
    ) -> list[Any]:
        assert slot.record is not None  # it was begun
        text = None if error is None else " ".join(told(error).split())[:_LONGEST_ERROR]
        return self._store(term, slot, ended(slot.record, slot.now(), outcome, text), ops)

    # ---- ZooKeeper -------------------------------------------------------------------------------

    def _read(self, term: Term) -> None:
        """Read the wishes; at the beginning of a term, also the records."""
        self._changed = False
        folder = self._folder
        try:
            data, _ = self._session.get(folder, self._hear)
        except NoNode:
            self._session.ensure_path(folder, shared=self._shared)
            data, _ = self._session.get(folder, self._hear)
        try:
            self._wishes = decode_wishes(data, path=folder)
        except CorruptRecord as exc:
            log.error("%s", exc)  # noqa: TRY400  (a sentence for operators)
        if term is not self._term:
            found = self._session.multi_read([GetData(slot.stored.path) for slot in self._slots])
            for slot, each in zip(self._slots, found, strict=True):
                self._take(term, slot, each)
            self._term = term
        self._look_at_s = clock.now_s() + self._session.timeout_s

    def _take(self, term: Term, slot: _Slot, found: Any) -> None:
        slot.record = slot.stored.version = None
        fresh = first_record(slot.definition, clock.now_ms())
        if isinstance(found, NoNode):
            self._store(term, slot, fresh)
            return
        if isinstance(found, Exception):
            raise found
        data, slot.stored.version = found[0], found[1].version
        try:
            slot.record, slot.seen_s = decode(data, path=slot.stored.path), clock.now_s()
        except CorruptRecord as exc:
            log.error("%s", exc)  # noqa: TRY400  (a sentence for operators)
            self._store(term, slot, fresh)
            return
        if (ahead := slot.record.last - clock.now_ms()) > _CLOCK_OFF_MS:
            log.warning(
                "the calendar is behind the last tick, and none runs before it is reached, except"
                " after leaderq schedule resume --from-now career=%s schedule=%s behind_s=%d",
                *(self._career, slot.definition.name, ahead // 1000),
            )

    def _hear(self, event: WatchEvent) -> None:
        if event.kind is not WatchKind.SESSION:
            self._changed = True

    def _store(
        self, term: Term, slot: _Slot, record: ScheduleRecord, ops: Sequence[Operation] = ()
    ) -> list[Any]:
        results = slot.stored.store(term, encode(record), ops)
        slot.record, slot.seen_s = record, clock.now_s()
        return results

    # ---- what is told ----------------------------------------------------------------------------

    def _tell_passed(self, term: Term, slot: _Slot, step: Step) -> None:
        who = self._career, self._candidate, term.number, slot.definition.name
        when = slot.definition.when
        for gap in step.gaps:
            slot.figures["passed"] += gap.count
            first, last = (when.moment(at).isoformat() for at in (gap.first, gap.last))
            self._events.publish(TicksPassedOver(*who, first, last, gap.count, gap.why.value))
        if step.lost is not None:
            slot.figures["lost"] += 1
            at = when.moment(step.lost.at).isoformat()
            self._events.publish(TickEnded(*who, at, TickOutcome.LOST.value, 0.0, None))

    def _tell_end(self, begun: _Begun, outcome: str, error: Exception | None = None) -> None:
        slot, tick = begun.slot, begun.tick
        took_s = clock.now_s() - begun.began_s
        slot.figures[outcome] += 1
        slot.figures["work_s"] += took_s
        who = self._career, self._candidate, tick.term.number
        if error is not None and outcome != "interrupted":
            self._events.publish(CareerError(*who, Stage.EXECUTION.value, error))
        at = tick.at.isoformat()
        self._events.publish(TickEnded(*who, tick.name, at, outcome, took_s, error))


def _work_on(tick: Tick, work: Callable[[Any], object]) -> Callable[[Any], object]:
    def on(held: Any) -> object:
        return work(tick if held is tick.term else AsyncTick(**{**vars(tick), "term": held}))

    on.__name__ = tick.name
    return on


def timetable_of(career: object, *rest: Any, **options: Any) -> Timetable | None:
    """Return the timetable of a career whose class has schedules; ``None`` for other careers.

    :raises ConfigurationError: the method of a schedule is not a plain function; in an async
        career, it is not made with ``async def``; or it is a stage, which is called at other times.
    """
    found = definitions_of(type(career))
    if not found:
        return None
    stages = {*getattr(career, "_called", ())}.intersection(found)
    own = "is called by leaderq itself; give the schedule a method of its own"
    require(*(f"{name} of {type(career).__qualname__} {own}" for name in sorted(stages)))
    check = coroutine_function if getattr(career, "_is_async", False) else plain_function
    require(*(check(name, getattr(career, name)) for name in found))
    return Timetable(career, [*found.values()], *rest, **options)
