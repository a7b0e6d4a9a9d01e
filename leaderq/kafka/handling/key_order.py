"""``order = "key"``: within a batch the records of each key are handled in order, and up to
``workers`` keys at a time. Each call of ``handle`` has one record, so whatever fails is known.

A *chain* is the records of one key in one partition; a record without a key is a chain of its own.
A failure stops its chain only. When all chains have come to their end or to a failure, what is done
is committed as far as nothing in front of it is undone (the *prefix*), failures are judged, and the
chains that are left go on, after the longest back-off among them. In an outage they wait together.
So no record is handled again because of another one, except after a crash: then everything behind
the prefix is, at most one batch.

Where records may have killed processes, the batch is handled in order of partitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from leaderq.kafka.handling.batch_handler import BatchHandler, BatchWork
from leaderq.kafka.handling.context import HandlingContext
from leaderq.kafka.handling.on_error import Ending, HoldUp, RetryAfter
from leaderq.kafka.handling.parts import BatchPart, PartFailure, attempt
from leaderq.kafka.record import Batch, Partition, Record, after
from leaderq.term import Term


def handler_for(context: HandlingContext) -> BatchHandler:
    is_by_key = context.by_key and context.workers > 1
    return BatchHandler(context, KeyOrderedWork if is_by_key else BatchWork)


class KeyChain:
    """The records of one key, of which the first ``done`` are handled or passed over. ``part``: the
    next one, once it has failed, with its attempts.
    """

    __slots__ = ("done", "part", "records")

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.done = 0
        self.part: BatchPart | None = None

    @property
    def left(self) -> int:
        return len(self.records) - self.done

    def advance(self) -> None:
        self.done += 1
        self.part = None


def chains_of(records: Iterable[Record]) -> list[KeyChain]:
    """The longest first: they decide how long the batch takes."""
    found: dict[object, KeyChain] = {}
    for record in records:
        own = record.offset if record.key is None else record.key
        name = (record.topic, record.partition, own)
        found.setdefault(name, KeyChain()).records.append(record)
    return sorted(found.values(), key=lambda chain: -chain.left)


class DonePrefix:
    """How far each partition of ``batch`` may be committed."""

    def __init__(self, batch: Batch) -> None:
        self._batch = batch
        self._done: dict[Partition, set[int]] = {where: set() for where in batch.records}
        self._through = dict.fromkeys(batch.records, 0)

    def add(self, records: Iterable[Record]) -> None:
        for record in records:
            self._done[record.topic_partition].add(record.offset)

    def ends(self) -> dict[Partition, int]:
        """The offset behind the last record of each partition's prefix, where there is one."""
        ends: dict[Partition, int] = {}
        for where, rows in self._batch.records.items():
            done, at = self._done[where], self._through[where]
            while at < len(rows) and rows[at].offset in done:
                at += 1
            self._through[where] = at
            if at:
                ends[where] = self._batch.ends[where] if at == len(rows) else after(rows[at - 1])
        return ends


class KeyOrderedWork(BatchWork):
    """The work on one batch; used once. For stores that commit offsets and nothing with them."""

    def __init__(self, handler: BatchHandler, batch: Batch, term: Term) -> None:
        super().__init__(handler, batch, term)
        self._handler = handler
        self._prefix = DonePrefix(batch)
        self._failed: list[KeyChain] = []

    def run(self) -> bool:
        if self._context.careful(self._batch.records):
            return BatchWork(self._handler, self._batch, self._term).run()
        limit = self._context.rate_limit
        rounds: Iterator[tuple[float, Sequence[Record]]]
        rows = self._batch.merged()
        rounds = iter([(0.0, rows)]) if limit is None else limit.parts(rows)
        for wait_s, records in rounds:
            if not self._has_waited(wait_s):
                return False
            if limit is not None:
                limit.handed_out()
            if not self._follow_all(chains_of(records)):
                self._commit_done()
                return False
        self._commit_done(all_done=True)
        self._context.figures.batches += 1
        return True

    def _follow_all(self, chains: list[KeyChain]) -> bool:
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

    def _follow_once(self, chains: Sequence[KeyChain]) -> None:
        """Follow each to its end or its first failure; these are then in ``_failed``."""
        assert self._workers is not None
        before = [chain.done for chain in chains]
        tasks = [partial(self._follow, chain) for chain in chains]
        outcomes = self._workers.run(tasks, self._may_begin)
        count = sum(chain.done for chain in chains) - sum(before)
        for chain, was in zip(chains, before, strict=True):
            self._prefix.add(chain.records[was : chain.done])
        if count:
            self._handled(count)
        self._failed = []
        for chain, outcome in zip(chains, outcomes, strict=True):
            if outcome.error is not None:
                one = BatchPart(chain.records[chain.done :][:1])
                self._warn_of_passing_on(one, outcome.error)
                raise outcome.error
            if outcome.value is not None:
                self._failed.append(chain)
                self._count(chain, outcome.value)

    def _follow(self, chain: KeyChain) -> PartFailure | None:
        """On a worker's thread; a chain is followed by one at a time."""
        context = self._context
        while chain.left and self._may_begin():
            one = chain.records[chain.done : chain.done + 1]
            failure = attempt(context.decode, context.handle, one, self._term)
            if failure is not None:
                return failure
            chain.advance()
        return None

    def _count(self, chain: KeyChain, failure: PartFailure) -> None:
        part = chain.part or BatchPart(chain.records[chain.done : chain.done + 1])
        part.failure = failure = self._classified(failure)
        part.failed += not failure.is_outage
        chain.part = part

    def _judge(self) -> float | None:
        """Decide about all failures; returns how many seconds to wait, if some are tried again."""
        waits: list[float] = []
        is_held_up = False
        self._failed.sort(key=lambda chain: not _failure_of(chain)[1].is_outage)
        while self._failed:
            chain = self._failed.pop()
            part, failure = _failure_of(chain)
            if is_held_up:
                continue  # one hold-up for all, and none is passed over meanwhile
            decision = self._decision(part, failure)
            if (asked := self._asked_to_pass(part, decision)) is not None:
                self._let_pass(chain, asked[1])
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
                self._pass_over(chain, part, failure)
        return max(waits, default=None)

    def _pass_over(self, chain: KeyChain, part: BatchPart, failure: PartFailure) -> None:
        record = part.records[0]
        self._commit_done()
        self._context.pass_over(self._term, record, failure.error, part.attempts)
        self._hold_ups.passed_over(record, failure.error)
        self._prefix.add((record,))
        chain.advance()
        self._commit_done()

    def _let_pass(self, chain: KeyChain, who: str) -> None:
        part, failure = _failure_of(chain)
        record = part.records[0]
        self._commit_done()
        self._bury(record, who, failure, part.attempts)
        self._prefix.add((record,))
        chain.advance()
        self._commit_done()
        self._buried(record)

    def _pending(self) -> list[tuple[BatchPart, PartFailure]]:
        return [_failure_of(chain) for chain in self._failed]

    def _commit_done(self, all_done: bool = False) -> bool:
        ends = self._batch.ends if all_done else self._prefix.ends()
        self._commit(ends, is_last=all_done)
        return True


def _failure_of(chain: KeyChain) -> tuple[BatchPart, PartFailure]:
    assert chain.part is not None
    assert chain.part.failure is not None
    return chain.part, chain.part.failure
