"""How one batch is handled: the order of work and committing, and what becomes of records that
fail.

All of it runs on the career thread, except the user's code with ``workers``. A *part* is what one
call of ``handle`` receives. Its *prefix* precedes the culprit, its *rest* follows it.

**What is done is committed** at the end of the batch, and before any wait (so that no transaction
stays open), any decision on a record, and stopping. With *at most once* a part is committed before
it is handed over, and never again.

On each failure:

* **handle raises** :class:`~leaderq.kafka.handling.on_error.PoisonRecord`: the prefix is committed
  (where effects are undone, ``undoes``, it is done again first), the culprit is judged, the rest is
  handed over. A value that cannot be decoded is such a culprit.
* **handle raises anything else**: the part is tried again as ``retry`` says; then, unless the
  policy ends in ``"raise"``, one record at a time, until one fails as often by itself: the culprit.
  The part's failures do not count as attempts of a record, because an outage that outlasts them
  would set a whole batch aside. Dead letters tell all attempts.
* **a retry waits** for 0.5 s or longer: only the culprit's partition waits, and its part comes back
  with the records that it begins with. All wait if the culprit is unknown among
  several partitions, with *at most once*, with a rate limit, and while records are marked.
* **an outage**, or too many records in a row fail alike: the part is tried again after a back-off,
  without end and without counting attempts (:class:`~leaderq.kafka.handling.on_error.HoldUps`).
* **the decision is to raise**: what is done is committed (nothing, where effects are undone), then
  the user's error is raised. Failures not judged yet are logged.
* **an operator lets a record pass** (``leaderq dead bury``) that is about to hold the work up, or
  to fail the term: it is passed over, and set aside if there is a topic for that.
* **skip, dead letter**: logged, told to the hook and set aside before the offset passes over the
  record, so a crash in between does it again.
* **the commit refuses an effect** (``EffectRefused``): all that was to be committed is undone and
  done again in smaller parts, each committed by itself, until one record is left: the culprit.
* **a dead letter or a commit fails otherwise, or the error is not about records**: it is raised as
  it is.
* **the term ends or pauses**: noticed between parts and after a back-off. The rest is not begun,
  and :meth:`BatchHandler.work` returns ``False``. Attempts count from 1 again in the next term.
* **AlreadyStored**: the records that are stored are done, the others are handed over again.
* **at most once**: a part with an unknown culprit is passed over as a whole; only ``retry`` repeats
  it. What was committed is handled even when the term is ending, but not when it is over.
* **the process dies**: see :mod:`leaderq.kafka.handling.crash_marks`.

With workers, the records of a partition are one part. When all parts have ended, what is done is
committed once, and failures are judged partition by partition; with ``undoes`` the batch is done
again, partition by partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, starmap

from leaderq.base import clock
from leaderq.errors import Deposed, FromOutside, KafkaFenced, told
from leaderq.kafka.clients.consumer import BatchLost, EffectRefused
from leaderq.kafka.handling.burials import RecordBuried
from leaderq.kafka.handling.context import HandlingContext, span
from leaderq.kafka.handling.on_error import (
    Decision,
    Ending,
    HoldUp,
    HoldUps,
    ProcessDied,
    RetryAfter,
)
from leaderq.kafka.handling.parts import (
    BatchPart,
    PartFailure,
    PartitionWorkers,
    PartMode,
    attempt,
    by_partition,
    ends_of,
)
from leaderq.kafka.record import Batch, Partition, Record
from leaderq.term import Term

REST_FROM_S = 0.5
"""Records read ahead are thrown away, which is worth it for so long a rest."""


class BatchHandler:
    """Handles batches for one career, through all its terms. For the career thread.

    *Guarantees:* the records of a partition are handed over in order, and none before those ahead
    of it were done or passed over; except with *at most once*, an offset is committed only when all
    before it were. *Not guaranteed:* that ``handle`` is called once for each.
    """

    def __init__(self, context: HandlingContext, work: type[BatchWork] | None = None) -> None:
        # Without a limit of deaths, or where nothing is repeated, marks are of no use.
        if context.on_error.deaths is None or context.commits_first:
            context = replace(context, marks=None)
        self.context = context
        self._work = work or BatchWork
        self.hold_ups = HoldUps(context.on_error)
        self.trusted = ""
        """The term in which a batch was handled without the death of the process."""
        self.workers: PartitionWorkers | None = None
        if context.workers > 1:
            self.workers = PartitionWorkers(context.workers, f"leaderq-{context.career}-worker")

    def work(self, batch: Batch, term: Term) -> bool:
        """Handle and commit ``batch``; returns ``False`` if the term is ending or paused, and part
        of it was not begun.

        Raises the user's error where the policy says so, and errors not about records.
        """
        return self._work(self, batch, term).run()

    def close(self) -> None:
        if self.workers is not None:
            self.workers.close()


class BatchWork:
    """The work on one batch; used once."""

    def __init__(self, handler: BatchHandler, batch: Batch, term: Term) -> None:
        context = self._context = handler.context
        self._hold_ups = handler.hold_ups
        self._workers = handler.workers
        self._abandoned: set[Partition] = set()
        self._batch = batch
        self._term = term
        self._line: deque[BatchPart] = deque()
        self._uncommitted: list[BatchPart] = []
        self._committed: dict[Partition, int] = {}
        self._began = False
        # With "at most once" nothing waits to be committed, so nothing can be undone.
        self._undoes = context.undoes and not context.commits_first

    def run(self) -> bool:
        """Run until all is committed, or the term ends or pauses; returns whether all is done."""
        for wait_s, parts in self._rounds():
            if not self._has_waited(wait_s) or not self._work_off():
                return False
            if self._context.rate_limit is not None:
                self._context.rate_limit.handed_out()
            is_plain = len(parts) > 1 and all(part.mode is PartMode.TOGETHER for part in parts)
            if self._workers is not None and is_plain:
                self._try(parts)
            else:
                self._line.extend(parts)
            if not self._work_off():
                return False
        while not self._commit_done(all_done=True):
            if not self._work_off():
                return False
        self._context.figures.batches += 1
        return True

    def _work_off(self) -> bool:
        """Do all parts in the line; returns ``False`` if the term ends or pauses before that."""
        while self._line:
            part = self._line.popleft()
            if part.failure is not None:
                self._decide(part, part.failure)
            elif self._is_to_stop() and not self._must_be_handled(part):
                self._warn_of_undecided(self._pending())
                self._commit_done()
                return False
            else:
                self._step(part)
        return True

    def _rounds(self) -> Iterator[tuple[float, Sequence[BatchPart]]]:
        context, batch = self._context, self._batch
        if context.rate_limit is not None:
            is_split = context.is_by_partition or context.marks is not None
            for wait_s, records in context.rate_limit.parts(batch.merged()):
                split = by_partition(records) if is_split else {}
                yield wait_s, self._parts(split, {}, partial(list, records))
            return
        again = self._rested()
        if not again:
            yield 0.0, self._parts(batch.records, batch.ends, batch.merged)
            return
        yield 0.0, again
        counts = {part.records[0].topic_partition: len(part.records) for part in again}
        left = {
            where: rows[counts.get(where, 0) :]
            for where, rows in batch.records.items()
            if where not in self._abandoned and len(rows) > counts.get(where, 0)
        }
        yield 0.0, self._parts(left, {}, Batch(records=left, ends={}).merged)

    def _rested(self) -> list[BatchPart]:
        """The parts, with their attempts, that the batch begins with; others, whose offset somebody
        has moved, are forgotten.
        """
        found = []
        for where, part in self._batch.noted.items():
            rows = self._batch.records[where]
            if rows[0].offset == part.records[0].offset:
                found.append(replace(part, records=rows[: len(part.records)], ends=None))
        return found

    def _parts(
        self,
        records: Mapping[Partition, Sequence[Record]],
        ends: Mapping[Partition, int],
        merged: Callable[[], Sequence[Record]],
    ) -> list[BatchPart]:
        careful = self._context.careful(records)
        if not careful and not self._context.is_by_partition:
            together = merged()
            return [BatchPart(together, ends=ends or None)] if together else []
        parts = []
        for where in sorted(where for where, rows in records.items() if rows):
            known = {where: ends[where]} if where in ends else None
            mode = PartMode.CAREFUL if where in careful else PartMode.TOGETHER
            parts.append(BatchPart(records[where], known, mode))
        return parts

    def _has_waited(self, wait_s: float) -> bool:
        if wait_s > 0:
            self._commit_done()
            self._term.wait(wait_s)
            self._began = True
        if self._is_to_stop():
            self._commit_done()
            return False
        return True

    def _step(self, part: BatchPart) -> None:
        part = self._first_of(part)
        if self._mark(part):
            self._try([part])

    def _try(self, parts: Sequence[BatchPart]) -> None:
        """Attempt these; what is left to do of them, and again because of them, is next in line."""
        self._commit_first(parts)
        self._began = True
        outcomes = self._attempted(parts)
        self._pass_on((parts[at], failure) for at, failure in outcomes.items() if failure)
        done: list[BatchPart] = []
        left: list[BatchPart] = []
        failed: list[tuple[BatchPart, PartFailure]] = []
        count = 0
        for at, part in enumerate(parts):
            failure = outcomes.get(at)
            ready, rest = part.done_after(failure) if at in outcomes else (None, part)
            if ready is not None:
                done.append(ready)
                count += len(ready.records)
            elif failure is not None:
                count += failure.done
                failed.append((part, self._classified(failure)))
            if rest is not None:
                left.append(rest)
        if count:
            self._handled(count)
        self._uncommitted += done
        if failed:
            again = self._undone(failed)
            left = [*again, *chain.from_iterable(starmap(self._cut, failed)), *left]
        self._line.extendleft(reversed(left))
        # before failures are judged
        if done and (failed or any(part.is_committed_at_once for part in done)):
            self._commit_now(done)

    def _pass_on(self, failed: Iterable[tuple[BatchPart, PartFailure]]) -> None:
        """Raise the first error that is not about records, if there is one; others are logged."""
        failures = sorted(failed, key=lambda each: not each[1].is_raised)
        if not failures or not failures[0][1].is_raised:
            return
        for part, failure in failures:
            if not failure.is_raised:
                self._warn_of_undecided([(part, failure)])
            elif not isinstance(failure.error, (Deposed, KafkaFenced, BatchLost, FromOutside)):
                what = "records failed, but none is to blame"
                self._context.warn(what, part.records, failure.error)
        raise failures[0][1].error

    def _attempted(self, parts: Sequence[BatchPart]) -> Mapping[int, PartFailure | None]:
        """How attempts at these have ended, by index, as far as they were begun: at one on this
        thread, at several side by side.
        """
        context, term = self._context, self._term
        decode, handle = context.decode, context.handle
        if self._workers is None or len(parts) == 1:
            return {0: attempt(decode, handle, parts[0].records, term)}
        tasks = [partial(attempt, decode, handle, part.records, term) for part in parts]
        # With "at most once" what is committed must be begun.
        return self._workers.run(tasks, lambda: context.commits_first or self._may_begin())

    def _handled(self, records: int) -> None:
        self._context.figures.records += records
        if not self._undoes:
            self._effects_stand()

    def _effects_stand(self) -> None:
        """Records were handled, and that cannot be undone any more."""
        if self._hold_ups.is_held_up:
            self._context.on_held_up(None)
        self._hold_ups.note_handled()

    def _classified(self, failure: PartFailure) -> PartFailure:
        """The same failure, marked as an outage if the work can be held up for it."""
        on_error = self._context.on_error
        may_be_held_up = on_error.holds_up and self._may_try_again()
        return replace(failure, is_outage=may_be_held_up and on_error.is_outage(failure.error))

    def _may_try_again(self) -> bool:
        return not self._context.commits_first or self._context.on_error.retries > 0

    def _first_of(self, part: BatchPart) -> BatchPart:
        """The part to try now; of one handed over one by one, the rest goes back to the front."""
        if part.mode is PartMode.TOGETHER:
            return part
        is_unmarked = part.mode is PartMode.CAREFUL and not part.marked
        if is_unmarked and not self._context.careful((part.records[0].topic_partition,)):
            return part.together()
        first, others = part.head()
        if others is not None:
            self._line.appendleft(others)
        return first

    def _mark(self, part: BatchPart) -> bool:
        """Mark the attempt if need be; ``False``: the part is not to be tried now, or never."""
        marks, limit = self._context.marks, self._context.on_error.deaths
        if part.mode is not PartMode.CAREFUL or part.marked or marks is None:
            return True
        if not self._is_committed_before(part):
            return False
        died = marks.before(self._term, part.records[0])
        part.marked = True
        if limit is None or died < limit:
            return True
        self._leave(part, ProcessDied(died), died)
        return False

    def _leave(self, part: BatchPart, error: BaseException, attempts: int) -> None:
        """Skip or dead-letter it, and commit that."""
        for record in part.records:
            self._context.pass_over(self._term, record, error, attempts)
        part.passed_over = True
        self._uncommitted.append(part)
        self._commit_now((part,))

    def _commit_now(self, parts: Sequence[BatchPart]) -> None:
        """These are done or passed over: commit them, so that they are not handled again."""
        marks = self._context.marks
        if self._commit_done() and marks is not None:
            for part in parts:
                if part.marked:
                    marks.after(self._term, part.records[0])

    def _undone(self, failed: Sequence[tuple[BatchPart, PartFailure]]) -> list[BatchPart]:
        """Undo the effects of the failed attempts, and all not committed with them; returns the
        parts to do again.

        Raises if the first failure is to be raised: doing the rest first would gain nothing.
        """
        if not self._undoes or not any(failure.touched for _part, failure in failed):
            return []
        if self._context.handle_stores:
            self._commit_done()  # what returned before is not undone
        self._context.undo()
        again, self._uncommitted = [part.again() for part in self._uncommitted], []
        part, failure = failed[0]
        decision = self._context.on_error.decision(part.failed_with(failure), failure.error)
        if decision is Ending.RAISE and not failure.is_outage:
            self._warn_of_undecided([*failed[1:], *self._pending()])
            self._warn_of_raising(part, failure)
            raise failure.error
        return again

    def _cut(self, part: BatchPart, failure: PartFailure) -> list[BatchPart]:
        """The parts to do now, in order, in place of a part that failed."""
        before, culprit, rest = part.cut(failure)
        if before is not None and failure.touched and not self._undoes:
            self._uncommitted.append(before)
            before = None
        return [each for each in (before, culprit, rest) if each is not None]

    def _decide(self, part: BatchPart, failure: PartFailure) -> None:
        decision = self._decision(part, failure)
        if self._is_to_bury(part, failure, decision):
            return
        if decision is Ending.RAISE:
            self._raise(part, failure)
        if not self._is_committed_before(part):
            return
        if isinstance(decision, HoldUp):
            self._hold_up(part, failure, decision)
        elif isinstance(decision, RetryAfter):
            self._retry(part, failure, decision.after_s)
        elif len(part.records) > 1 and not self._context.commits_first:
            what = "records failed together, trying one by one"
            self._context.warn(what, part.records, failure.error, {"attempt": part.attempts})
            self._line.appendleft(part.isolated())
        else:
            for record in part.records:
                self._hold_ups.note_passed_over(record, failure.error)
            self._leave(part, failure.error, part.attempts)
            # The culprit is known: the records isolated behind it go on together.
            if self._line and part.mode is self._line[0].mode is PartMode.ISOLATED:
                self._line.appendleft(self._line.popleft().together())

    def _is_to_bury(
        self, part: BatchPart, failure: PartFailure, decision: Decision | HoldUp
    ) -> bool:
        """Whether an operator wants a record of the part to pass; then that is in the line."""
        asked = self._asked_to_pass(part, decision)
        if asked is None:
            return False
        index, who = asked
        if len(part.records) > 1:
            before, culprit, rest = part.cut(replace(failure, index=index))
            # Its own effects are undone, or there were none: all before it is to be handled.
            self._line.extendleft(one for one in (rest, culprit, before) if one is not None)
            return True
        if self._is_committed_before(part):
            self._leave(part, RecordBuried(who, failure.error), part.attempts)
            self._buried(part.records[0])
        return True

    def _asked_to_pass(
        self, part: BatchPart, decision: Decision | HoldUp
    ) -> tuple[int, str] | None:
        burials = self._context.burials
        if burials is None or (isinstance(decision, Ending) and decision.passes_over):
            return None
        return burials.among(part.records)

    def _buried(self, record: Record) -> None:
        if self._context.burials is not None:
            self._context.burials.done(self._term, record)
        if self._hold_ups.is_held_up:
            self._context.on_held_up(None)
            self._hold_ups.note_handled()

    def _decision(self, part: BatchPart, failure: PartFailure) -> Decision | HoldUp:
        if failure.is_outage:
            return self._hold_ups.decision(clock.now_s())
        on_error, record = self._context.on_error, part.records[0]
        # At most once: nothing that is committed is tried again, unless ``retry`` says so.
        dies_of = None if self._context.commits_first else failure.error
        decision = on_error.decision(part.failed, dies_of)
        passes_over = isinstance(decision, Ending) and decision.passes_over
        if not (passes_over and len(part.records) == 1 and self._may_try_again()):
            return decision
        if not self._hold_ups.are_too_many(record, failure.error):
            return decision
        # Is the fault in the records, or in something they need?
        what = "record not passed over, too many in a row failed alike"
        most = on_error.most_in_a_row
        self._context.warn(what, part.records, failure.error, {"most_in_a_row": most})
        return self._hold_ups.decision(clock.now_s())

    def _hold_up(self, part: BatchPart, failure: PartFailure, decision: HoldUp) -> None:
        self._tell_hold_up(part, failure, decision)
        part.failure = None
        self._line.appendleft(part)
        if not self._term.wait(decision.after_s) and self._context.commits_first:
            raise failure.error  # committed already, so it would be tried until the term is over

    def _tell_hold_up(self, part: BatchPart, failure: PartFailure, decision: HoldUp) -> None:
        times = {"held_up_s": f"{decision.since_s:.1f}", "again_in_s": f"{decision.after_s:.1f}"}
        what = "records held up, none is passed over"
        more = self._context.how_to_pass(part.records)
        self._context.warn(what, part.records, failure.error, times | more)
        self._context.on_held_up(f"{span(part.records)}: {told(failure.error)}")

    def _tell_retry(self, part: BatchPart, failure: PartFailure, after_s: float) -> None:
        values = {"attempt": part.attempts, "again_in_s": f"{after_s:.1f}"}
        self._context.warn("records failed, trying again", part.records, failure.error, values)

    def _retry(self, part: BatchPart, failure: PartFailure, after_s: float) -> None:
        self._tell_retry(part, failure, after_s)
        part.failure = None
        if self._may_rest(part, after_s):
            where = part.records[0].topic_partition
            self._abandoned.add(where)
            others = (left for each in self._line if (left := each.without(where)) is not None)
            self._line = deque(others)
            return
        self._line.appendleft(part)
        if after_s > 0:
            self._term.wait(after_s)

    def _may_rest(self, part: BatchPart, after_s: float) -> bool:
        """Whether the part's partition can rest for so long, while the others go on."""
        context, where = self._context, part.records[0].topic_partition
        if context.rest is None or after_s < REST_FROM_S or part.marked:
            return False
        if context.commits_first or context.rate_limit is not None:
            return False
        return part.without(where) is None and context.rest(where, after_s, part)

    def _raise(self, part: BatchPart, failure: PartFailure) -> None:
        self._warn_of_undecided(self._pending())
        self._warn_of_raising(part, failure)
        try:
            self._commit_done()
        except BaseException:
            what = "records failed, what was done before them was not committed"
            self._context.warn(what, part.records, failure.error, trace=True)
            raise
        raise failure.error

    def _warn_of_raising(self, part: BatchPart, failure: PartFailure) -> None:
        at = failure.index
        blamed = part.records if at is None or len(part.records) == 1 else part.records[at : at + 1]
        more = self._context.how_to_pass(blamed)
        self._context.warn("records failed, raising the error", blamed, failure.error, more)

    def _warn_of_undecided(self, failed: Iterable[tuple[BatchPart, PartFailure]]) -> None:
        for part, failure in failed:
            what = "records failed too, nothing more is done about them in this batch"
            self._context.warn(what, part.records, failure.error)

    def _pending(self) -> list[tuple[BatchPart, PartFailure]]:
        return [(part, part.failure) for part in self._line if part.failure is not None]

    def _commit_first(self, parts: Iterable[BatchPart]) -> None:
        if self._context.commits_first:
            self._commit(self._ends(parts))

    def _commit_done(self, all_done: bool = False) -> bool:
        """Commit what is done; ``False``: its effects are refused, and it is to be done again,
        before all else in the line.
        """
        done, self._uncommitted = self._uncommitted, []
        try:
            if all_done:
                ends = self._batch.ends.items()
                left = {where: end for where, end in ends if where not in self._abandoned}
                self._commit(left, is_last=True)
            elif done and not self._context.commits_first:
                self._commit(self._ends(done))
        except EffectRefused as exc:
            self._context.undo()
            self._line.extendleft(reversed(self._again(done, exc.error)))
            return False
        if self._undoes and not all(part.passed_over for part in done):
            self._effects_stand()
        return True

    def _again(self, refused: Sequence[BatchPart], error: Exception) -> list[BatchPart]:
        if not refused or any(part.passed_over for part in refused):
            raise error  # no record that was handled is to blame
        if len(refused) > 1:
            return [part.again() for part in refused]
        if len(refused[0].records) > 1:
            what = "effects refused, looking for the record"
            self._context.warn(what, refused[0].records, error)
        return refused[0].after_refusal(error)

    def _is_committed_before(self, part: BatchPart) -> bool:
        """Commit what is done; ``False``: that is to be done again first, and then ``part``."""
        self._line.appendleft(part)
        if not self._commit_done():
            return False
        self._line.popleft()
        return True

    def _ends(self, parts: Iterable[BatchPart]) -> Mapping[Partition, int]:
        return dict(chain.from_iterable(ends_of(part, self._batch).items() for part in parts))

    def _commit(self, ends: Mapping[Partition, int], *, is_last: bool = False) -> None:
        context = self._context
        commit = (context.commit_behind if is_last else None) or context.commit
        new = {where: end for where, end in ends.items() if end > self._committed.get(where, -1)}
        if new:
            figures, began_s = context.figures, clock.now_s()
            commit(self._term, new)
            figures.commits += 1
            figures.commit_s += clock.now_s() - began_s
            parts = self._batch.records.items()
            figures.time_commit(
                rows[0] for at, rows in parts if at in new and at not in self._committed
            )
            self._committed.update(new)

    def _is_to_stop(self) -> bool:
        return self._began and not self._may_begin()

    def _may_begin(self) -> bool:
        return not self._term.ending.is_set() and not self._term.paused

    def _must_be_handled(self, part: BatchPart) -> bool:
        """With "at most once": whether it is committed, so that nobody else will handle it."""
        if not self._context.commits_first:
            return False
        self._term.check()
        ends = ends_of(part, self._batch).items()
        return all(end <= self._committed.get(where, -1) for where, end in ends)
