"""Records side by side: ``order = "key"`` and ``"none"``, and all careers of coroutines that handle
one record at a time. ``workers`` threads, or ``concurrency`` coroutines, have one each, so whatever
fails is known.

A *chain* is what is handled in order: the records of one key in one partition (one without a key is
alone), or of one partition, or any one. A failure stops its chain only. When all chains have come
to their end or to a failure, what is done is committed as far as nothing in front of it is undone
(the *prefix*), failures are judged, and the chains that are left go on, after the longest back-off
among them. In an outage they wait together. So no record is handled again because of another one,
except after a crash: then everything behind the prefix is, at most one batch. When the term is to
end, what is in front of a record that has begun is handled too; the rest is left.

What a call wants stored is kept with its record, and given to the store in the order of the batch,
when its prefix is committed. So nothing that is done is ever undone. If the store refuses that for
what it contains, the prefix is committed record by record, until the one at fault is known; it
cannot be handled with another result, so it is passed over, or raises.

Where records may have killed processes, the batch is handled in order of partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from leaderq.async_term import AsyncTerm
from leaderq.errors import UnitAbandoned
from leaderq.kafka.clients.consumer import EffectRefused
from leaderq.kafka.handling.batch_handler import BatchHandler, BatchWork
from leaderq.kafka.handling.burials import RecordBuried
from leaderq.kafka.handling.context import HandlingContext, RecordOrder
from leaderq.kafka.handling.on_error import Ending, HoldUp, RetryAfter
from leaderq.kafka.handling.parts import (
    BatchPart,
    CoroutineWorkers,
    PartFailure,
    TaskOutcome,
    attempt,
    attempt_awaited,
)
from leaderq.kafka.record import Batch, Partition, Record, after
from leaderq.kafka.stores.handle_call import Effect, effects_kept
from leaderq.term import Term
from leaderq.threads import primitives


def handler_for(context: HandlingContext) -> BatchHandler:
    return BatchHandler(context, SideBySideWork if context.is_side_by_side else BatchWork)


class Chain:
    """Records to be handled in order, of which the first ``done`` are handled or passed over.
    ``part``: the next one, once it has failed, with its attempts.
    """

    __slots__ = ("done", "part", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.done = 0
        self.part: BatchPart | None = None

    @property
    def left(self) -> int:
        return len(self.records) - self.done


def chains_of(records: Iterable[Record], order: RecordOrder = RecordOrder.KEY) -> list[Chain]:
    """The longest first: they decide how long the batch takes."""
    found: dict[object, Chain] = {}
    for record in records:
        own: object = None
        if order is not RecordOrder.PARTITION:
            is_alone = order is RecordOrder.NONE or record.key is None
            own = record.offset if is_alone else record.key
        found.setdefault((record.topic, record.partition, own), Chain()).records.append(record)
    return sorted(found.values(), key=lambda chain: -chain.left)


class DonePrefix:
    """How far each partition of ``batch`` may be committed, and what is stored with that. For one
    thread, except for :meth:`add`.
    """

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._done: dict[Partition, dict[int, Sequence[Effect]]] = {
            where: {} for where in batch.records
        }
        self._through = dict.fromkeys(batch.records, 0)

    def add(self, record: Record, effects: Sequence[Effect] = ()) -> None:
        self._done[record.topic_partition][record.offset] = effects

    def grown(self) -> list[tuple[Record, Sequence[Effect]]]:
        """What has joined the prefix since this was called before, partition by partition."""
        found = []
        for where, rows in self._batch.records.items():
            done, at = self._done[where], self._through[where]
            while at < len(rows) and rows[at].offset in done:
                found.append((rows[at], done.pop(rows[at].offset)))
                at += 1
            self._through[where] = at
        return found

    def ends(self) -> dict[Partition, int]:
        """The offset behind the last record of each partition's prefix, where there is one."""
        return {
            where: self._batch.ends[where] if at == len(rows) else after(rows[at - 1])
            for where, rows in self._batch.records.items()
            if (at := self._through[where])
        }


class SideBySideWork(BatchWork):
    """The work on one batch; used once."""

    def __init__(self, handler: BatchHandler, batch: Batch, term: Term) -> None:
        super().__init__(handler, batch, term)
        self._handler = handler
        self._prefix = DonePrefix(batch)
        self._failed: list[tuple[Chain, BatchPart, PartFailure]] = []
        self._set_aside: set[str] = set()
        self._begun = dict.fromkeys(batch.records, -1)
        self._beginning = primitives.Lock()

    def run(self) -> bool:
        context = self._context
        if context.careful(self._batch.records):
            return BatchWork(self._handler, self._batch, self._term).run()
        limit = context.rate_limit
        rounds: Iterator[tuple[float, Sequence[Record]]]
        rows = self._batch.merged()
        rounds = iter([(0.0, rows)]) if limit is None else limit.parts(rows)
        for wait_s, records in rounds:
            if not self._has_waited(wait_s):
                return False
            if limit is not None:
                limit.handed_out()
            try:
                is_done = self._follow_all(chains_of(records, context.order))
            except UnitAbandoned:  # coroutines were cancelled
                if self._may_finish():
                    self._commit_done()
                raise
            if not is_done:
                self._commit_done()
                return False
        self._commit_done(all_done=True)
        context.figures.batches += 1
        return True

    def _follow_all(self, chains: list[Chain]) -> bool:
        while chains:
            if self._is_to_stop():
                return False
            self._began = True
            self._follow_once(chains)
            wait_s = self._judge()
            chains = [chain for chain in chains if chain.left]
            if wait_s is not None:
                self._commit_done()
                self._term.wait(wait_s)
        return True

    def _follow_once(self, chains: Sequence[Chain]) -> None:
        """Follow each to its end or its first failure; these are then in ``_failed``."""
        left = sum(chain.left for chain in chains)
        try:
            outcomes = self._run(chains)
        finally:  # also where coroutines were cancelled: what is done is done
            if count := left - sum(chain.left for chain in chains):
                self._handled(count)
        self._failed = []
        for chain, outcome in zip(chains, outcomes, strict=True):
            if outcome.error is not None:
                one = BatchPart(chain.records[chain.done :][:1])
                self._warn_of_passing_on(one, outcome.error)
                raise outcome.error
            if outcome.value is not None:
                self._failed.append(self._counted(chain, outcome.value))

    def _run(self, chains: Sequence[Chain]) -> list[TaskOutcome]:
        coroutines = self._context.coroutines
        if coroutines is not None:
            awaited = [partial(self._follow_awaited, chain, coroutines) for chain in chains]
            return coroutines.run(awaited, self._term)
        assert self._workers is not None
        return self._workers.run([partial(self._follow, each) for each in chains], lambda: True)

    def _next(self, chain: Chain) -> Sequence[Record]:
        """The record to handle now, if there is one; noted as begun."""
        if not chain.left:
            return ()
        record = chain.records[chain.done]
        where = record.topic_partition
        with self._beginning:
            if not self._may_begin():
                is_in_front = record.offset < self._begun[where]
                return (record,) if is_in_front and self._may_finish() else ()
            self._begun[where] = max(self._begun[where], record.offset)
        return (record,)

    def _may_finish(self) -> bool:
        """Whether a term that is to end is still trusted."""
        return not self._term.paused and self._term.remaining_s() > 0

    def _follow(self, chain: Chain) -> PartFailure | None:
        """On a worker's thread; a chain is followed by one at a time."""
        context = self._context
        while one := self._next(chain):
            with effects_kept() as effects:
                failure = attempt(context.decode, context.handle, one, self._term)
            if failure is not None:
                return failure
            self._advance(chain, effects)
        return None

    async def _follow_awaited(
        self, chain: Chain, coroutines: CoroutineWorkers, term: AsyncTerm
    ) -> PartFailure | None:
        """On the event loop."""
        while one := self._next(chain):
            with effects_kept() as effects:
                failure = await attempt_awaited(self._context.decode, coroutines.handle, one, term)
            if failure is not None:
                return failure
            self._advance(chain, effects)
        return None

    def _advance(self, chain: Chain, effects: Sequence[Effect]) -> None:
        """The chain's next record is done, or passed over."""
        self._prefix.add(chain.records[chain.done], effects)
        chain.done += 1
        chain.part = None

    def _counted(self, chain: Chain, failure: PartFailure) -> tuple[Chain, BatchPart, PartFailure]:
        part = chain.part = chain.part or BatchPart(chain.records[chain.done : chain.done + 1])
        failure = self._classified(failure)
        part.failed += not failure.is_outage
        return chain, part, failure

    def _judge(self) -> float | None:
        """Decide about all failures; returns how many seconds to wait, if some are tried again."""
        waits: list[float] = []
        is_held_up = False
        self._failed.sort(key=lambda one: not one[2].is_outage)
        while self._failed:
            chain, part, failure = self._failed.pop()
            if is_held_up:
                continue  # one hold-up for all, and none is passed over meanwhile
            decision = self._decision(part, failure)
            if (asked := self._asked_to_pass(part, decision)) is not None:
                self._pass_over(chain, part, RecordBuried(asked[1], failure.error))
                self._buried(part.records[0])
            elif isinstance(decision, HoldUp):
                is_held_up = True
                self._tell_hold_up(part, failure, decision)
                waits.append(decision.after_s)
            elif isinstance(decision, RetryAfter):
                self._tell_retry(part, failure, decision.after_s)
                waits.append(decision.after_s)
            elif decision is Ending.RAISE:
                self._raise(part, failure)
            else:
                self._hold_ups.passed_over(part.records[0], failure.error)
                self._pass_over(chain, part, failure.error)
        return max(waits, default=None)

    def _pass_over(self, chain: Chain, part: BatchPart, error: BaseException) -> None:
        record = part.records[0]
        self._commit_done()
        letter = self._letter(record, error, part.attempts)
        self._set_aside.add(record.place)
        self._advance(chain, letter)
        self._commit_done()

    def _letter(self, record: Record, error: BaseException, attempts: int) -> Sequence[Effect]:
        """Skip or dead-letter it; returns what is to be stored with its offset."""
        with effects_kept() as letter:
            self._context.pass_over(self._term, record, error, attempts)
        return letter

    def _pending(self) -> list[tuple[BatchPart, PartFailure]]:
        return [(part, failure) for _chain, part, failure in self._failed]

    def _commit_done(self, all_done: bool = False) -> bool:
        grown = self._prefix.grown()
        ends = self._batch.ends if all_done else self._prefix.ends()
        try:
            self._store(grown, ends, is_last=all_done)
        except EffectRefused:
            self._context.undo()
            for one in grown:
                self._store_alone(*one)
            self._store([], ends, is_last=all_done)
        return True

    def _store(
        self,
        grown: Sequence[tuple[Record, Sequence[Effect]]],
        ends: Mapping[Partition, int],
        *,
        is_last: bool = False,
    ) -> None:
        for _record, effects in grown:
            for effect in effects:
                effect()
        self._commit(ends, is_last=is_last)
        if grown and self._undoes:
            self._effects_stand()

    def _store_alone(self, record: Record, effects: Sequence[Effect]) -> None:
        ends = {record.topic_partition: after(record)}
        try:
            self._store([(record, effects)], ends)
            return
        except EffectRefused as exc:
            self._context.undo()
            error = exc.error
        failure = PartFailure(error, None, touched=True)
        part = BatchPart([record], failed=self._context.on_error.retries + 1, failure=failure)
        decision = self._decision(part, failure)
        passes_over = isinstance(decision, Ending) and decision.passes_over
        if not passes_over or record.place in self._set_aside:
            self._warn_of_raising(part, failure)
            raise error
        letter = self._letter(record, error, part.attempts)
        self._hold_ups.passed_over(record, error)
        try:
            self._store([(record, letter)], ends)
        except EffectRefused as exc:
            raise exc.error from error
