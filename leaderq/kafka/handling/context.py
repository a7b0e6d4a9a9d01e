"""What handling needs of its career, and what is said of records that fail."""

from __future__ import annotations

import logging
import reprlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType

from leaderq.base import clock
from leaderq.errors import told
from leaderq.kafka.clients.producer import Message
from leaderq.kafka.dead_letters.format import new_dead_letter
from leaderq.kafka.handling.burials import BurialRequests
from leaderq.kafka.handling.calls import CoroutineWorkers
from leaderq.kafka.handling.crash_marks import CrashMarks
from leaderq.kafka.handling.on_error import OnError
from leaderq.kafka.record import Batch, Partition, Record
from leaderq.term import Term

log = logging.getLogger(__name__)


class BatchShape(str, Enum):
    """What is handed over in one call: a whole batch, or its records of one partition."""

    MERGED = "merged"
    PARTITION = "partition"


class RecordOrder(str, Enum):
    """Which records of a partition are handled in order: all, those of each key, or none."""

    PARTITION = "partition"
    KEY = "key"
    NONE = "none"


def is_side_by_side(coroutines: CoroutineWorkers | None, order: RecordOrder, workers: int) -> bool:
    """Whether each call of ``handle`` has one record, and several calls are under way at a time."""
    return coroutines is not None or (order is not RecordOrder.PARTITION and workers > 1)


@dataclass
class DrainFigures:
    """Counts what a career has handled and committed since its process began; a record that is
    repeated counts again.

    ``delay_s``: seconds from the time stamp to the commit, added up over ``timed`` records (the
    first of each partition of a batch). ``_held_up``: how many seconds former hold-ups lasted, and
    when the present one began (``None``: there is none); one tuple, because a scrape takes no lock.
    """

    records: int = 0
    batches: int = 0
    commits: int = 0
    commit_s: float = 0.0
    timed: int = 0
    delay_s: float = 0.0
    _held_up: tuple[float, float | None] = (0.0, None)

    def time_commit(self, records: Iterable[Record]) -> None:
        """Count the delays of ``records``: the offsets after them were committed now."""
        now_ms = clock.now_ms()
        for at_ms in (one.timestamp_ms for one in records):
            if at_ms >= 0:  # else nobody knows
                self.timed += 1
                self.delay_s += max(0, now_ms - at_ms) / 1000

    def hold_up(self, is_held_up: bool) -> None:
        """Note that from now on the work is held up, or that it is not."""
        self._held_up = self._held_up_s(), clock.now_s() if is_held_up else None

    def _held_up_s(self) -> float:
        over_s, since_s = self._held_up
        return over_s if since_s is None else over_s + clock.now_s() - since_s

    def read(self) -> dict[str, float]:
        """What a scrape is told."""
        found = {name: value for name, value in vars(self).items() if not name.startswith("_")}
        return {**found, "held_up_s": self._held_up_s()}


@dataclass(frozen=True)
class HandlingContext:
    """One career's code, offset store and policies, as handling sees them through all its terms.

    Threads: ``handle`` and ``decode`` are the user's code, and may be called on worker threads or
    the event loop. All else, ``commit``, ``send_dead_letter`` and every ``on_...`` too, is called
    on the career thread, or, while coroutines run, on the one thread that stands in for it.

    ``decode(record)`` returns exactly one record, which ``handle(records, term)`` is given instead
    of the raw one. It cannot drop a record: it returns one, or raises, and then ``on_error``
    decides. ``commit(term, ends)`` waits until these offsets are committed. ``commit_behind``, if
    given, is used for the last ends of a batch, and need not wait. ``more(wait_s, is_enough)``
    returns more records; from then on they are one batch with those in hand. It returns ``None`` if
    there were none, or no room for them, until ``wait_s`` or ``is_enough()``.
    ``undo()`` drops effects that the store was given and has refused. ``undoes``: effects of a call
    of ``handle`` that failed vanish. ``commits_first``: *at most once*. ``send_dead_letter(term,
    topic, letter)`` has stored the letter when it returns, or the next ``commit`` stores it.
    ``rest(partition, for_s)`` hands out no records of the partition for ``for_s`` seconds, then
    again from the committed offset; it returns ``False``, and does nothing, if there is no other
    partition. ``is_lost()``: what is in hand was abandoned, so nothing more of it is begun.
    ``coroutines`` handles records side by side on the career's event loop. ``noted(records)`` is
    entered around ``decode`` and ``handle``, by whoever calls them.

    ``on_skipped(record, error, attempts)`` and ``on_dead_lettered(record, error, attempts, topic)``
    are called for each raw record that is passed over, before its offset is committed: at least
    once, perhaps twice. ``on_held_up(why)`` tells that the work is held up; ``None``: it is not any
    more.
    """

    career: str
    handle: Callable[[Sequence[Record], Term], None]
    commit: Callable[[Term, Mapping[Partition, int]], None]
    undo: Callable[[], None]
    send_dead_letter: Callable[[Term, str, Message], None]
    on_error: OnError
    commit_behind: Callable[[Term, Mapping[Partition, int]], None] | None = None
    more: Callable[[float, Callable[[], bool]], Batch | None] | None = None
    decode: Callable[[Record], Record] | None = None
    rest: Callable[[Partition, float], bool] | None = None
    is_lost: Callable[[], bool] = lambda: False
    undoes: bool = False
    commits_first: bool = False
    batches: BatchShape = BatchShape.MERGED
    workers: int = 1
    order: RecordOrder = RecordOrder.PARTITION
    coroutines: CoroutineWorkers | None = None
    noted: Callable[[Sequence[Record]], AbstractContextManager[None]] = lambda _: nullcontext()
    marks: CrashMarks | None = None
    burials: BurialRequests | None = None
    on_skipped: Callable[[Record, BaseException, int], object] = lambda *_: None
    on_dead_lettered: Callable[[Record, BaseException, int, str], object] = lambda *_: None
    on_held_up: Callable[[str | None], object] = lambda *_: None
    figures: DrainFigures = field(default_factory=DrainFigures)

    def how_to_pass(self, records: Sequence[Record]) -> dict[str, object]:
        """For a log line: the key of the record in hand, and the command that lets it pass."""
        if len(records) != 1:
            return {}
        command = f"leaderq dead bury --career {self.career} --at {records[0].place} --yes"
        return {"key": reprlib.repr(records[0].key), "let_pass": command}

    def careful(self, partitions: Iterable[Partition]) -> frozenset[Partition]:
        marks = self.marks
        return frozenset(where for where in partitions if marks and marks.is_careful(where))

    def pass_over(self, term: Term, record: Record, error: BaseException, attempts: int) -> None:
        """Skip or dead-letter a raw record. To be called before its offset is committed, so that a
        crash loses no record.
        """
        term.check()
        values: dict[str, object] = {"attempts": attempts}
        if (topic := self.on_error.letters_topic(self.career)) is None:  # or an operator lets it
            self.warn("record skipped", (record,), error, values)
            self.on_skipped(record, error, attempts)
            return
        said = attempts, term.number, self.career, int(clock.calendar_s() * 1000)
        self.send_dead_letter(term, topic, new_dead_letter(record, error, *said))
        self.warn("record set aside", (record,), error, {"topic": topic, **values})
        self.on_dead_lettered(record, error, attempts, topic)

    def warn(
        self,
        phrase: str,
        records: Sequence[Record],
        error: BaseException,
        values: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        """Log a failure: a fixed phrase, which career and records, ``values``, and the error."""
        first, last = records[0].place, records[-1].place
        where = {"career": self.career, "records": first if first == last else f"{first}..{last}"}
        named = {**where, **values, "error": told(error)}
        text = " ".join((phrase, *(f"{name}=%s" for name in named)))
        log.warning(text, *named.values(), extra=where)


def span(records: Sequence[Record]) -> str:
    first, last = records[0].place, records[-1].place
    return first if len(records) == 1 else f"{len(records)} records from {first} to {last}"
