"""What the work on a batch needs and what outlasts it: the career's desk and policies; and what is
said of records that fail."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from leaderq.kafka.dead_letters.format import letter_of
from leaderq.kafka.handling.desk import Desk, Marks, Pace
from leaderq.kafka.handling.on_error import Bury, OnError, Skip, dead_topic, place_of
from leaderq.kafka.handling.part import Failure, Part
from leaderq.kafka.handling.workers import Workers
from leaderq.kafka.record import Partition, Record
from leaderq.term import Term

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bench:
    """One career's way of handling; see :class:`~leaderq.kafka.handling.handling.Handling`."""

    desk: Desk
    is_by_partition: bool
    on_error: OnError
    saves_first: bool
    career: str
    marks: Marks | None
    pace: Pace | None
    workers: Workers | None
    on_skipped: Callable[[Record, Exception, int], None] | None
    on_buried: Callable[[Record, Exception, int, str], None] | None

    def careful(self, partitions: Iterable[Partition]) -> frozenset[Partition]:
        """Those of which records are to be handled one by one now, each marked before."""
        return (
            frozenset(where for where in partitions if self.marks.is_careful(where))
            if self.marks is not None
            else frozenset()
        )

    def pass_over(self, term: Term, record: Record, error: Exception, attempts: int) -> None:
        """Skip or bury a raw record; before its offset is saved, as a crash in between must not
        lose it.

        Raises :class:`~leaderq.errors.Deposed`, or what the desk's ``bury`` raises.
        """
        term.check()
        verdict, place = self.on_error.terminal, place_of(record)
        if isinstance(verdict, Bury):
            topic = verdict.topic or dead_topic(self.career)
            at_ms = int(time.time() * 1000)
            letter = letter_of(record, error, attempts=attempts, term=term.number, career=self.career, at_ms=at_ms)
            self.desk.bury(term, topic, letter)
            self._warn("%s is set aside on %s after %d attempt(s): %s", place, topic, attempts, _said(error))
            if self.on_buried is not None:
                self.on_buried(record, error, attempts, topic)
        elif isinstance(verdict, Skip):
            self._warn("%s is skipped after %d attempt(s): %s", place, attempts, _said(error))
            if self.on_skipped is not None:
                self.on_skipped(record, error, attempts)

    def tell_retried(self, part: Part, error: Exception, after_s: float) -> None:
        """A part is tried again."""
        self._warn(
            "%s failed (attempt %d); tried again in %.1f s: %s", _span(part.records), part.attempts, after_s, _said(error)
        )

    def tell_isolated(self, part: Part, error: Exception) -> None:
        """A part failed too often, and it is not known by which record."""
        self._warn("%s failed together (attempt %d); now one by one: %s", _span(part.records), part.attempts, _said(error))

    def tell_unjudged(self, failed: Iterable[tuple[Part, Failure]]) -> None:
        """The work on the batch ends before these failures could be judged."""
        for part, failure in failed:
            self._warn(
                "%s failed too, and nothing more is done about it in this batch: %s",
                _span(part.records),
                _said(failure.error),
            )

    def tell_more(self, errors: Iterable[BaseException]) -> None:
        """Errors that are not about records, of which only the first is raised."""
        for error in errors:
            self._warn("another partition met %s", _said(error))

    def tell_unsaved(self, error: Exception) -> None:
        """The error that was to be raised is not, as saving what was done before it failed in its
        turn.
        """
        self._warn("%s; and what was done before it could not be saved", _said(error), cause=error)

    def _warn(self, sentence: str, *values: object, cause: Exception | None = None) -> None:
        log.warning("career %s: " + sentence, self.career, *values, exc_info=cause, extra={"career": self.career})


def _span(records: Sequence[Record]) -> str:
    first, last = place_of(records[0]), place_of(records[-1])
    return first if len(records) == 1 else f"{len(records)} records from {first} to {last}"


def _said(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
