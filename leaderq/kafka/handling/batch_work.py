"""The work on one batch, as :mod:`leaderq.kafka.handling.handling` describes it: a line of parts,
worked off from its front.

A part that failed goes back to the front, cut around its culprit, with the failure on it; a failure
at the front of the line is judged, when all before it is done. So there is one place that tries,
one that judges and one that saves.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial

from leaderq.kafka.handling.attempt import attempt
from leaderq.kafka.handling.bench import Bench
from leaderq.kafka.handling.on_error import ProcessDied, Raise, Retry
from leaderq.kafka.handling.part import Failure, Mode, Part, by_partition, ends_of
from leaderq.kafka.handling.workers import Outcome
from leaderq.kafka.record import Batch, Partition, Record
from leaderq.term import Term


class BatchWork:
    """The work on one batch; used once."""

    def __init__(self, bench: Bench, batch: Batch, term: Term) -> None:
        self._bench = bench
        self._desk = bench.desk
        self._batch = batch
        self._term = term
        self._line: deque[Part] = deque()
        self._unsaved: list[Part] = []
        self._saved: dict[Partition, int] = {}
        self._began = False
        # With "at most once" nothing waits to be saved, so nothing is there to be undone.
        self._undoes = bench.desk.undoes and not bench.saves_first

    def run(self) -> bool:
        """Until all is done and saved, or the term ends or pauses; gives which."""
        for wait_s, parts in self._rounds():
            if not self._has_waited(wait_s):
                return False
            if self._bench.pace is not None:
                self._bench.pace.handed_out()
            self._line.extend(self._in_parallel(parts) if self._is_parallel(parts) else parts)
            while self._line:
                part = self._line.popleft()
                if part.failure is not None:
                    self._judge(part, part.failure)
                elif self._is_to_stop() and not self._must_be_handled(part):
                    return self._stopped()
                else:
                    self._step(part)
        self._save_done(all_done=True)
        return True

    # -- what is handed over -------------------------------------------------------------------------------------------

    def _rounds(self) -> Iterator[tuple[float, Sequence[Part]]]:
        """How long to wait, and the parts to work on then."""
        if self._bench.pace is None:
            yield 0.0, self._parts(self._batch.records, self._batch.ends, self._batch.merged)
            return
        is_split = self._bench.is_by_partition or self._bench.marks is not None
        for wait_s, records in self._bench.pace.parts(self._batch.merged()):
            yield wait_s, self._parts(by_partition(records) if is_split else {}, {}, partial(list, records))

    def _parts(
        self,
        records: Mapping[Partition, Sequence[Record]],
        ends: Mapping[Partition, int],
        merged: Callable[[], Sequence[Record]],
    ) -> list[Part]:
        careful = self._bench.careful(records)
        if not careful and not self._bench.is_by_partition:
            together = merged()
            return [Part(together, ends=ends or None)] if together else []
        parts = []
        for where in sorted(records):
            if records[where]:
                known = {where: ends[where]} if where in ends else None
                parts.append(Part(records[where], ends=known, mode=Mode.CAREFUL if where in careful else Mode.TOGETHER))
        return parts

    def _has_waited(self, wait_s: float) -> bool:
        """Wait for the pace's sake; gives whether work may go on."""
        if wait_s > 0:
            self._save_done()
            self._term.wait(wait_s)
            self._began = True
        if not self._is_to_stop():
            return True
        self._save_done()
        return False

    # -- trying --------------------------------------------------------------------------------------------------------

    def _step(self, part: Part) -> None:
        part = self._first_of(part)
        if not self._mark(part):
            return
        self._save_first((part,))
        self._began = True
        failure = attempt(self._desk, part.records, self._term)
        if failure is None:
            self._passed(part, part.is_saved_alone)
        else:
            self._line.extendleft(reversed(self._undone([(part, failure)]) + self._cut(part, failure)))

    def _first_of(self, part: Part) -> Part:
        """The part to try now: of those handed over one by one, the first record; the others go
        back to the front.
        """
        if part.mode is Mode.TOGETHER:
            return part
        if part.mode is Mode.CAREFUL and not part.marked and not self._bench.careful((_partition(part.records[0]),)):
            return part.together()
        first, others = part.head()
        if others is not None:
            self._line.appendleft(others)
        return first

    def _mark(self, part: Part) -> bool:
        """Mark the attempt if need be; gives ``False`` if the record was passed over, having taken
        too many processes.
        """
        marks, limit = self._bench.marks, self._bench.on_error.deaths
        if part.mode is not Mode.CAREFUL or part.marked or marks is None:
            return True
        self._save_done()
        died = marks.before(self._term, part.records[0])
        part.marked = True
        if limit is None or died < limit:
            return True
        self._bench.pass_over(self._term, part.records[0], ProcessDied(died), died)
        self._passed(part, is_saved_now=True)
        return False

    def _passed(self, part: Part, is_saved_now: bool) -> None:
        """The part is done, skipped or buried.

        What was skipped or buried is saved now, lest it be handled again when something later is
        undone.
        """
        self._unsaved.append(part)
        if is_saved_now:
            self._save_done()
        if part.marked and self._bench.marks is not None:
            self._bench.marks.after(self._term, part.records[0])

    def _undone(self, failed: Sequence[tuple[Part, Failure]]) -> list[Part]:
        """Undo what the failed attempts did, and all that is not saved yet with it; gives what is
        to be done again.

        If the first failure is to be raised, this does it: nothing would be gained by doing the
        rest again first.
        """
        if not self._undoes or not any(failure.touched for _part, failure in failed):
            return []
        self._desk.undo()
        again, self._unsaved = [part.again() for part in self._unsaved], []
        part, failure = failed[0]
        if isinstance(self._bench.on_error.verdict(part.failed_with(failure)), Raise):
            self._bench.tell_unjudged([*failed[1:], *self._pending()])
            raise failure.error
        return again

    def _cut(self, part: Part, failure: Failure) -> list[Part]:
        """What is to be done now, in order, in place of a part that failed."""
        before, culprit, rest = part.cut(failure)
        if before is not None and failure.touched and not self._undoes:
            self._unsaved.append(before)
            before = None
        return [each for each in (before, culprit, rest) if each is not None]

    # -- judging -------------------------------------------------------------------------------------------------------

    def _judge(self, part: Part, failure: Failure) -> None:
        verdict = self._bench.on_error.verdict(part.failed)
        if isinstance(verdict, Raise):
            self._raise(failure)
        self._save_done()
        if isinstance(verdict, Retry):
            self._retry(part, failure, verdict.after_s)
        elif len(part.records) > 1 and not self._bench.saves_first:
            self._bench.tell_isolated(part, failure.error)
            self._line.appendleft(part.isolated())
        else:
            for record in part.records:
                self._bench.pass_over(self._term, record, failure.error, part.attempts)
            self._passed(part, is_saved_now=True)
            self._end_isolation(part)

    def _retry(self, part: Part, failure: Failure, after_s: float) -> None:
        self._bench.tell_retried(part, failure.error, after_s)
        part.failure = None
        self._line.appendleft(part)
        if after_s > 0:
            self._term.wait(after_s)

    def _raise(self, failure: Failure) -> None:
        self._bench.tell_unjudged(self._pending())
        try:
            self._save_done()
        except BaseException:
            self._bench.tell_unsaved(failure.error)
            raise
        raise failure.error

    def _pending(self) -> list[tuple[Part, Failure]]:
        return [(part, part.failure) for part in self._line if part.failure is not None]

    def _end_isolation(self, part: Part) -> None:
        """The culprit has shown: what was isolated behind it goes on together."""
        if part.mode is Mode.ISOLATED and self._line and self._line[0].mode is Mode.ISOLATED:
            self._line.appendleft(self._line.popleft().together())

    # -- saving --------------------------------------------------------------------------------------------------------

    def _save_first(self, parts: Iterable[Part]) -> None:
        """With "at most once": save what is about to be handed over, unless it was."""
        if self._bench.saves_first:
            self._save({where: end for part in parts for where, end in ends_of(part, self._batch).items()})

    def _save_done(self, all_done: bool = False) -> None:
        done, self._unsaved = self._unsaved, []
        if all_done:
            self._save(self._batch.ends)
        elif done and not self._bench.saves_first:
            self._save({where: end for part in done for where, end in ends_of(part, self._batch).items()})

    def _save(self, ends: Mapping[Partition, int]) -> None:
        new = {where: end for where, end in ends.items() if end > self._saved.get(where, -1)}
        if new:
            self._desk.save(self._term, new)
            self._saved.update(new)

    # -- stopping ------------------------------------------------------------------------------------------------------

    def _is_to_stop(self) -> bool:
        return self._began and not self._may_begin()

    def _may_begin(self) -> bool:
        return not self._term.ending.is_set() and not self._term.paused

    def _must_be_handled(self, part: Part) -> bool:
        """With "at most once": whether it is saved already, so that nobody else will ever handle
        it. Ends with the term even so."""
        if not self._bench.saves_first:
            return False
        self._term.check()
        return all(end <= self._saved.get(where, -1) for where, end in ends_of(part, self._batch).items())

    def _stopped(self) -> bool:
        self._bench.tell_unjudged(self._pending())
        self._save_done()
        return False

    # -- several at once -----------------------------------------------------------------------------------------------

    def _is_parallel(self, parts: Sequence[Part]) -> bool:
        return self._bench.workers is not None and len(parts) > 1 and all(part.mode is Mode.TOGETHER for part in parts)

    def _in_parallel(self, parts: Sequence[Part]) -> list[Part]:
        """Try all; gives what is left to be done, in order."""
        self._save_first(parts)
        self._began = True
        may_begin = _always if self._bench.saves_first else self._may_begin  # what is saved must be begun
        tasks = [partial(attempt, self._desk, part.records, self._term) for part in parts]
        outcomes: list[Outcome[Failure | None]] = self._bench.workers.run(tasks, may_begin) if self._bench.workers else []
        failed = [(part, outcome.value) for part, outcome in zip(parts, outcomes, strict=True) if outcome.value is not None]
        errors = [outcome.error for outcome in outcomes if outcome.error is not None]
        if errors:
            self._bench.tell_unjudged(failed)
            self._bench.tell_more(errors[1:])
            raise errors[0]
        self._unsaved += [
            part for part, outcome in zip(parts, outcomes, strict=True) if outcome.began and outcome.value is None
        ]
        left = self._undone(failed)
        for part, failure in failed:
            left += self._cut(part, failure)
        self._save_done()
        return left + [part for part, outcome in zip(parts, outcomes, strict=True) if not outcome.began]


def _always() -> bool:
    return True


def _partition(record: Record) -> Partition:
    return Partition(record.topic, record.partition)
