"""How one batch is handled: chains are followed until each has come to its end or to a failure,
what is done is committed, failures are judged, and so on until nothing is left.

To follow a chain is to hand over its next piece (:mod:`leaderq.kafka.handling.chains`), again and
again. That is done by the career thread, one chain after the other until a piece fails; by
``workers`` threads; or by coroutines on the career's event loop. All else happens on the career
thread, or, while coroutines follow, on one thread that stands in for it.

**What is done is committed** at the end of the batch, and before any wait (so that no transaction
stays open), any judgement, and stopping. What a call wants stored is kept with its piece, and given
to the store in the order of the log, when it is committed. With *at most once* a piece is committed
before it is handed over, and never again.

On each failure:

* **handle raises** :class:`~leaderq.kafka.handling.on_error.PoisonRecord`: what precedes the
  culprit is done (handled again, where effects of a failed call are undone, ``undoes``), the
  culprit is judged, the rest is handed over. A value that cannot be decoded is such a culprit.
* **handle raises anything else**: the piece is judged as a whole, then one record at a time. Its
  failures do not count as attempts of a record, because an outage that outlasts them would set a
  whole batch aside. Dead letters tell all attempts.
* **the judgement** is the table of :meth:`~leaderq.kafka.handling.on_error.ErrorJudge.decide`.
* **a retry waits** for 0.5 s or longer: only the culprit's partition waits, and its piece, with its
  attempts, comes back when its records are read again. All wait if the culprit is unknown among
  several partitions, side by side, with *at most once*, and while records are marked.
* **an operator lets a record pass** (``leaderq dead bury``) that is about to hold the work up, or
  to fail the term: it is passed over, and set aside if there is a topic for that.
* **skip, dead letter**: the record is logged, told to the hook and set aside before the offset
  passes over it, so a crash in between repeats that.
* **the commit refuses an effect** (``EffectRefused``): pieces are committed one by one. One that is
  refused is handled again in halves, until one record is left. That cannot be handled with another
  result: it is passed over or raises.
* **a dead letter or a commit fails otherwise, or the error is not about records**: it is raised as
  it is, and nothing more is begun.
* **the term ends or pauses**: no piece is begun, except a record in front of one that has. The rest
  is left, and :meth:`BatchHandler.work` returns ``False``. Attempts count from 1 again in the next
  term.
* **the batch is abandoned**: no piece is begun either, also after a hold-up.
* **AlreadyStored**: the records that are stored are done, the others are handed over again.
* **at most once**: a piece with an unknown culprit is passed over as a whole; only ``retry``
  repeats it. What was committed is handled even when the term is ending, but not when it is over.
* **the process dies**: see :mod:`leaderq.kafka.handling.crash_marks`. Where records may have killed
  processes, the career thread follows chains of partitions, whatever the order.

**Record by record the batch slides.** What is done is committed meanwhile, and then there is room
for more records. So one that is slow holds up its own chain, and the others only when
``max_records`` are in hand, which is also the most that a crash repeats. After a failure, and after
5 s, nothing more is taken in, because ticks of schedules wait for the unit. No record is handled
again because of another one, except after a crash.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from leaderq.async_term import AsyncTerm
from leaderq.base import clock
from leaderq.errors import Deposed, FromOutside, KafkaFenced, UnitAbandoned, told
from leaderq.kafka.clients.consumer import BatchLost, EffectRefused
from leaderq.kafka.handling import chains
from leaderq.kafka.handling.burials import RecordBuried
from leaderq.kafka.handling.calls import (
    SLICE_S,
    CallFailure,
    SharedWork,
    Start,
    ThreadWorkers,
    attempt,
    attempt_awaited,
)
from leaderq.kafka.handling.chains import BatchPiece, InHand, Rested
from leaderq.kafka.handling.context import BatchShape, HandlingContext, is_side_by_side, span
from leaderq.kafka.handling.on_error import (
    MOST_IN_A_ROW,
    Decision,
    Ending,
    ErrorJudge,
    ProcessDied,
    RetryAfter,
)
from leaderq.kafka.record import Batch, Partition
from leaderq.kafka.stores.handle_call import Effect, HandleCall
from leaderq.term import Term

REST_FROM_S = 0.5
"""Records read ahead are thrown away, which is worth it for so long a rest."""
SLIDES_FOR_S = 5.0
_UNDECIDED = "records failed too, nothing more is done about them in this batch"


class BatchHandler:
    """Handles batches for one career, through all its terms. For the career thread.

    *Guarantees:* the records of a chain are handed over in order, each only after those in front of
    it were done or passed over. Except with *at most once*, an offset is committed only when all
    records in front of it were. *Not guaranteed:* that ``handle`` is called only once for a record.
    """

    def __init__(self, context: HandlingContext) -> None:
        # Without a limit of deaths, or where nothing is repeated, marks are of no use.
        if context.on_error.deaths is None or context.commits_first:
            context = replace(context, marks=None)
        self.context = context
        self.judge = ErrorJudge(context.on_error, commits_first=context.commits_first)
        self._term = ""
        self.is_trusted = False
        """Whether a batch was handled in this term without the death of the process."""
        self.rested: Rested = {}
        self.threads: ThreadWorkers | None = None
        if context.workers > 1:
            self.threads = ThreadWorkers(context.workers, f"leaderq-{context.career}-worker")

    def work(self, batch: Batch, term: Term) -> bool:
        """Handle and commit ``batch``. Returns ``False`` if the term is ending or paused, or the
        batch was abandoned, and part of it was not begun.

        Raises the user's error if the policy says so, and errors that are not about records.
        """
        is_done = BatchWork(self, batch, term).run()
        if not is_done and self.judge.end_hold_up():
            self.context.on_held_up(None)
        return is_done

    def begin(self, term: Term) -> None:
        """Forget what belongs to an earlier term: attempts count from 1 again."""
        if self._term != term.id:
            self._term, self.is_trusted, self.rested = term.id, False, {}
            self.judge.end_hold_up()

    def close(self) -> None:
        if self.threads is not None:
            self.threads.close()


class BatchWork(SharedWork):
    """The work on one batch, and on the records that are taken in meanwhile; used once."""

    def __init__(self, handler: BatchHandler, batch: Batch, term: Term) -> None:
        super().__init__()
        handler.begin(term)
        context = self._context = handler.context
        self._handler, self._judge = handler, handler.judge
        self._batch, self._term = batch, term
        self._careful = context.careful(batch.records)
        is_alone = is_side_by_side(context.coroutines, context.order, context.workers)
        self._is_alone = is_alone and not self._careful  # each call has one record
        self._hand = InHand()
        self._committed: dict[Partition, int] = {}
        # With "at most once" nothing waits to be committed, so nothing can be undone.
        self._undoes = context.undoes and not context.commits_first
        self._begun: dict[Partition, int] = {}
        self._outcomes: list[tuple[BatchPiece, CallFailure]] = []
        self._told = 0
        # A record that kills is found by deaths at one offset: none is committed in front of it.
        is_suspect = context.marks is not None and term.unclean and not handler.is_trusted
        self.slides = self._is_alone and context.more is not None and not is_suspect
        self._takes_in_until_s = clock.now_s() + SLIDES_FOR_S if self.slides else 0.0
        self._due = 0  # so many are done when the next commit is due

    def run(self) -> bool:
        """Run until all records are committed, or the term ends or pauses; ``True``: all are."""
        self._add(self._batch)
        self._due = max(1, self._hand.uncommitted // 4)
        is_done = self._work_off()
        while is_done and not self._commit_done(is_last=True):
            is_done = not self._is_to_stop() and self._work_off()
        if not is_done:
            self._warn_of_undecided()
            self._commit_done()
            return False
        self._handler.is_trusted = True
        self._context.figures.batches += 1
        return True

    def _add(self, batch: Batch) -> None:
        if self._is_alone:
            found = chains.by_records(batch.merged(), self._context.order)
        elif (
            self._careful or self._context.batches == BatchShape.PARTITION or self._handler.threads
        ):
            found = chains.by_partitions(batch, self._handler.rested)
        else:
            found = chains.whole(batch, self._handler.rested)
        self._hand.add(batch, found)

    def _work_off(self) -> bool:
        """Follow all chains to their ends. Returns ``False`` if the term ends or pauses first."""
        while not self._hand.is_empty:
            if self._is_to_stop():
                return False
            try:
                self._follow_all()
            except UnitAbandoned:
                if self._context.coroutines is not None and self._is_trusted():
                    self._commit_done()  # coroutines were cancelled
                raise
            if not self._hand.is_empty:
                self._judge_failed()
        return True

    # ---- following chains ------------------------------------------------------------------------

    def _follow_all(self) -> None:
        """Follow each chain to its end or its first failure. Then cut the pieces that failed around
        their culprits, and commit what is done.
        """
        context, threads, hand = self._context, self._handler.threads, self._hand
        self._outcomes, self.started, self.ended = [], 0, []
        hand.restart()
        try:
            if self._careful or (context.coroutines is None and threads is None):
                self._follow_here()
            elif self._is_alone and context.coroutines is not None:
                context.coroutines.run(self, self._follow_awaited, self._term)
            elif threads is not None and (hand.ready > 1 or self.slides):
                self._commit_first(hand.fronts)
                threads.run(self, self._follow)
            else:
                self._follow_here()
        finally:  # also where coroutines were cancelled: what is done is done
            self._tell_handled()
        if self._outcomes:
            self._raise_others()
        for piece, failure in self._outcomes:
            if not hand.is_stored(piece, failure):
                is_outage = self._judge.is_outage(failure.error)
                hand.cut(piece, replace(failure, is_outage=is_outage), undoes=self._undoes)
        if hand.is_empty:
            return  # the last commit is due
        try:
            self._commit_done()
        except BaseException:
            self._warn_of_undecided()
            raise

    def _follow_here(self) -> None:
        """Follow one chain after the other on this thread, until a piece fails."""
        while not self._outcomes and (chain := self._hand.begin(self._admits)) is not None:
            piece = self._hand.split(chain, careful=self._is_careful(chain.pieces[0]))
            self._commit_first((piece,))
            if not self._is_careful(piece) or self._marked(piece):
                self._call(piece)
            if piece.marked and piece.is_done:
                self._commit_done()

    def _follow(self) -> None:
        """On a worker's thread."""
        while (chain := self._hand.begin(self._admits)) is not None:
            self._call(self._hand.split(chain))

    def _call(self, piece: BatchPiece) -> None:
        context = self._context
        with HandleCall() as effects, context.noted(piece.records):
            failure = attempt(context.decode, context.handle, piece.records, self._term)
        self._note(piece, failure, effects)

    async def _follow_awaited(self, term: AsyncTerm) -> None:
        """On the event loop."""
        context = self._context
        decode, coroutines = context.decode, context.coroutines
        assert coroutines is not None
        while (chain := self._hand.begin(self._admits)) is not None:
            piece = chain.pieces[0]
            with HandleCall() as effects, context.noted(piece.records):
                failure = await attempt_awaited(decode, coroutines.handle, piece.records, term)
            self._note(piece, failure, effects)

    def _note(
        self, piece: BatchPiece, failure: CallFailure | None, effects: Sequence[Effect]
    ) -> None:
        if failure is None:
            self._hand.advance(piece, effects)
        else:
            self._outcomes.append((piece, failure))
            self.is_stopped = self.is_stopped or failure.is_raised
        if self._is_due():
            self.waker.wake()

    def _admits(self, piece: BatchPiece) -> bool:
        """Whether the piece is to be handed over now."""
        is_open = self._may_begin()
        if not self._is_alone:
            return is_open or self._must_be_handled(piece)
        record = piece.records[0]
        where = record.topic_partition
        begun = self._begun.get(where, -1)
        if is_open:
            self._begun[where] = max(begun, record.offset)
        return is_open or (record.offset < begun and not self.is_stopped and self._is_trusted())

    def _may_begin(self) -> bool:
        is_over = self._term.ending.is_set() or self._term.paused
        return not (self.is_stopped or is_over or self._context.is_lost())

    def _is_trusted(self) -> bool:
        """Whether the lease lasts and the term is not paused; it may be ending."""
        return not self._term.paused and self._term.remaining_s() > 0

    def _must_be_handled(self, piece: BatchPiece) -> bool:
        """Whether the piece must be handled even when the term is ending: with *at most once* it is
        committed, so that nobody else will handle it.
        """
        if not self._context.commits_first or self.is_stopped:
            return False
        self._term.check()
        ends = chains.ends_of((piece,)).items()
        return all(end <= self._committed.get(where, -1) for where, end in ends)

    def _is_to_stop(self) -> bool:
        return not self._may_begin() and not any(map(self._must_be_handled, self._hand.fronts))

    # ---- several at a time: see ``SharedWork`` ---------------------------------------------------

    def supply(self, start: Start) -> None:
        """Until all workers have ended, commit what is done, and take in more records while there
        is room. No other thread uses the store meanwhile.
        """
        more, careful = self._context.more, self._context.careful

        def is_enough() -> bool:
            return self._is_due() or not self.busy or self.is_stopped

        self.started += start(self._hand.ready, self.busy)
        while self.busy and not self.is_stopped:
            takes_in = clock.now_s() < self._takes_in_until_s and self._may_begin()
            if self._is_due():
                self._commit_done()
            elif more is None or not takes_in or self._outcomes:
                self.waker.wait(SLICE_S)
            elif (batch := more(SLICE_S, is_enough)) is not None:
                if careful(batch.records):  # it is handed out again, and handled otherwise
                    self._takes_in_until_s = 0.0
                else:
                    self._add(batch)
                    self.started += start(self._hand.ready, self.busy)

    def _is_due(self) -> bool:
        return self.slides and self._hand.done >= self._due

    # ---- records that may kill the process -------------------------------------------------------

    def _is_careful(self, piece: BatchPiece) -> bool:
        """Whether it is handed over record by record, each marked durably before, because one may
        kill the process.
        """
        is_marked = not self._careful or piece.marked
        return not is_marked and bool(self._context.careful((piece.records[0].topic_partition,)))

    def _marked(self, piece: BatchPiece) -> bool:
        """Mark the attempt durably. ``False``: too many processes have died of the piece, so it was
        passed over, and must not be tried.
        """
        marks, limit = self._context.marks, self._context.on_error.deaths
        assert marks is not None
        self._commit_done()
        died = marks.before(self._term, piece.records[0])
        piece.marked = True
        if limit is None or died < limit:
            return True
        self._pass_over(piece, ProcessDied(died), died)
        return False

    # ---- failures --------------------------------------------------------------------------------

    def _raise_others(self) -> None:
        """Raise the first error that is not about records, if there is one; others are logged."""
        failed = sorted(self._outcomes, key=lambda each: not each[1].is_raised)
        if not failed or not failed[0][1].is_raised:
            return
        for piece, failure in failed:
            if not failure.is_raised:
                self._context.warn(_UNDECIDED, piece.records, failure.error)
            elif not isinstance(failure.error, (Deposed, KafkaFenced, BatchLost, FromOutside)):
                what = "records failed, but none is to blame"
                self._context.warn(what, piece.records, failure.error)
        raise failed[0][1].error

    def _judge_failed(self) -> None:
        """Decide about the failure at the front of each chain; then wait, if need be."""
        waits: list[float] = []
        held_up: CallFailure | None = None
        failed = [(one, one.failure) for one in self._hand.fronts if one.failure is not None]
        for piece, failure in sorted(failed, key=lambda each: each[1].is_outage):
            piece.failure = None
            if held_up is not None:
                continue  # one hold-up for all, and none is passed over meanwhile
            decision = self._decision(piece, failure)
            if self._is_to_bury(piece, failure, decision):
                continue
            if isinstance(decision, Ending):
                if not decision.passes_over:
                    self._warn_of_undecided()
                    self._warn_of_raising(piece, failure)
                    raise failure.error
                for record in piece.records:
                    self._judge.note_passed_over(record, failure.error)
                self._pass_over(piece, failure.error, piece.attempts)
            elif decision.held_up_s is not None:
                held_up = failure
                self._tell_hold_up(piece, failure, decision)
                waits.append(decision.after_s)
            elif decision.one_by_one:
                what = "records failed together, trying one by one"
                self._context.warn(what, piece.records, failure.error, {"attempt": piece.attempts})
                piece.isolated, piece.before, piece.failed = True, piece.attempts, 0
            else:
                waits += self._retry(piece, failure, decision.after_s)
        if waits and not self._term.wait(max(waits)) and held_up and self._context.commits_first:
            raise held_up.error  # committed already, so it would be tried until the term is over

    def _decision(self, piece: BatchPiece, failure: CallFailure) -> Decision:
        return self._judge.decide(
            failure.error,
            piece.records[0],
            clock.now_s(),
            attempts=piece.failed,
            records=len(piece.records),
            is_outage=failure.is_outage,
        )

    def _retry(self, piece: BatchPiece, failure: CallFailure, after_s: float) -> list[float]:
        """Let the piece be tried again in ``after_s`` seconds. Returns that time if all chains must
        wait for it; nothing if only its partition rests.
        """
        values = {"attempt": piece.attempts, "again_in_s": f"{after_s:.1f}"}
        self._context.warn("records failed, trying again", piece.records, failure.error, values)
        context, where = self._context, piece.records[0].topic_partition
        may_rest = after_s >= REST_FROM_S and not self._is_alone
        may_rest = may_rest and not piece.marked and not context.commits_first
        if not may_rest or piece.without(where) is not None:
            return [after_s]
        if context.rest is None or not context.rest(where, after_s):
            return [after_s]
        self._handler.rested[where] = piece
        self._hand.drop(where)
        return []

    def _is_to_bury(self, piece: BatchPiece, failure: CallFailure, decision: object) -> bool:
        """Whether an operator has asked to let a record of the piece pass. Then the record is
        passed over; if the piece has others, it is cut around the record first.
        """
        burials = self._context.burials
        if burials is None or (isinstance(decision, Ending) and decision.passes_over):
            return False
        if (asked := burials.among(piece.records)) is None:
            return False
        index, who = asked
        if len(piece.records) > 1:
            # Its own effects are undone, or there were none: all before it is to be handled.
            self._hand.cut(piece, replace(failure, index=index, touched=False), undoes=True)
            return True
        self._pass_over(piece, RecordBuried(who, failure.error), piece.attempts)
        burials.done(self._term, piece.records[0])
        self._effects_stand()
        return True

    def _pass_over(self, piece: BatchPiece, error: BaseException, attempts: int) -> None:
        """Skip or dead-letter the records of the piece, and commit that."""
        self._hand.advance(piece, self._letter(piece, error, attempts))
        pieces = piece.chain.pieces
        if piece.isolated and pieces and pieces[0].isolated:
            pieces[0].together()  # the culprit is known
        self._commit_done()

    def _letter(self, piece: BatchPiece, error: BaseException, attempts: int) -> Sequence[Effect]:
        """Skip or dead-letter the records of the piece; returns the effects to store with them."""
        piece.passed_over = True
        with HandleCall() as letter:
            for record in piece.records:
                self._context.pass_over(self._term, record, error, attempts)
        return letter

    # ---- committing ------------------------------------------------------------------------------

    def _commit_first(self, pieces: Iterable[BatchPiece]) -> None:
        if self._context.commits_first:
            self._commit(chains.ends_of(pieces))

    def _commit_done(self, *, is_last: bool = False) -> bool:
        """Commit what is done. With ``is_last``, return ``False`` if pieces are left that must be
        handled again, because the store has refused their effects.
        """
        self._tell_handled()
        hand, alone = self._hand, False
        while pieces := hand.finished(alone=alone):
            covers = is_last and len(pieces) == hand.uncommitted
            try:
                self._store(pieces, hand.ends if covers else chains.ends_of(pieces), is_last=covers)
            except EffectRefused as exc:
                self._context.undo()
                if len(pieces) > 1:
                    alone = True
                else:
                    self._solve(pieces[0], exc.error)
                continue
            hand.settle(pieces)
            for piece in pieces:
                if piece.marked and self._context.marks is not None:
                    self._context.marks.after(self._term, piece.records[0])
        if self.slides:
            self._due = hand.done + max(1, hand.uncommitted // 4)
        return not (is_last and hand.uncommitted)

    def _store(
        self, pieces: Sequence[BatchPiece], ends: Mapping[Partition, int], *, is_last: bool
    ) -> None:
        for piece in pieces:
            for effect in piece.effects:
                effect()
        self._commit(ends, is_last=is_last)
        if self._undoes and not all(piece.passed_over for piece in pieces):
            self._effects_stand()

    def _solve(self, piece: BatchPiece, error: Exception) -> None:
        """Deal with a piece whose effects the store has refused. Halve it if it has several
        records. If it has one, decide by the policy: skip it or store a dead letter instead of its
        effects; hold the work up, then store the same again; or raise.
        """
        if piece.passed_over:
            raise error  # no record that was handled is to blame
        if len(piece.records) > 1:
            self._context.warn("effects refused, looking for the record", piece.records, error)
            self._hand.halve(piece)
            return
        failure = CallFailure(error)
        piece.failed = self._context.on_error.retries + 1
        decision = self._decision(piece, failure)
        if isinstance(decision, RetryAfter):
            self._tell_hold_up(piece, failure, decision)
            if not self._term.wait(decision.after_s) or not self._may_begin():
                self.is_stopped, piece.failure = True, failure
        elif decision.passes_over:
            self._judge.note_passed_over(piece.records[0], error)
            piece.effects = self._letter(piece, error, piece.attempts)
        else:
            self._warn_of_raising(piece, failure)
            raise error

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

    # ---- what is said ----------------------------------------------------------------------------

    def _tell_handled(self) -> None:
        count, self._told = self._hand.done - self._told, self._hand.done
        self._context.figures.records += count
        if count and not self._undoes:
            self._effects_stand()

    def _effects_stand(self) -> None:
        """Note that records were handled and that this cannot be undone: a hold-up has ended."""
        if self._judge.note_handled():
            self._context.on_held_up(None)

    def _tell_hold_up(self, piece: BatchPiece, failure: CallFailure, decision: RetryAfter) -> None:
        context, records, error = self._context, piece.records, failure.error
        if not failure.is_outage:  # Is the fault in the records, or in something they need?
            what = "record not passed over, too many in a row failed alike"
            context.warn(what, records, error, {"most_in_a_row": MOST_IN_A_ROW})
        times = {
            "held_up_s": f"{decision.held_up_s:.1f}",
            "again_in_s": f"{decision.after_s:.1f}",
        }
        what = "records held up, none is passed over"
        context.warn(what, records, error, times | context.how_to_pass(records))
        context.on_held_up(f"{span(records)}: {told(error)}")

    def _warn_of_raising(self, piece: BatchPiece, failure: CallFailure) -> None:
        more = self._context.how_to_pass(piece.records)
        self._context.warn("records failed, raising the error", piece.records, failure.error, more)

    def _warn_of_undecided(self) -> None:
        for piece, failure in self._hand.undecided:
            self._context.warn(_UNDECIDED, piece.records, failure.error)
