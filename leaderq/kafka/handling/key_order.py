"""Records side by side: ``order = "key"`` and ``"none"``, and all careers of coroutines that handle
one record at a time. ``workers`` threads, or ``concurrency`` coroutines, have one each, so whatever
fails is known.

A *chain* is what is handled in order: the records of one key in one partition (one without a key is
alone), or of one partition, or any one. The batch *slides*: whoever has handled a record takes the
next one whose chain is free, meanwhile what is done is committed as far as nothing in front of it
is undone (the *prefix*), and there is room for more records. So one that is slow holds up its own
chain, and the others only when ``max_records`` are in hand, which is also the most that a crash
repeats. After 5 s nothing more is taken in, because ticks of schedules wait for the unit.

A failure stops its chain, and nothing more is taken in. When all other chains have come to their
end or to a failure, failures are judged, and the chains that are left go on, after the longest
back-off among them. In an outage they wait together. So no record is handled again because of
another one, except after a crash. When the term is to end, what is in front of a record that has
begun is handled too; the rest is left.

What a call wants stored is kept with its record, and given to the store in the order of the log,
when its prefix is committed. So nothing that is done is ever undone. If the store refuses that for
what it contains, the prefix is committed record by record, until the one at fault is known; it
cannot be handled with another result, so it is passed over, or raises.

Where records may have killed processes, the batch is handled in order of partitions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import count

from leaderq.async_term import AsyncTerm
from leaderq.base import clock
from leaderq.errors import UnitAbandoned
from leaderq.kafka.clients.consumer import EffectRefused
from leaderq.kafka.handling.batch_handler import BatchHandler, BatchWork
from leaderq.kafka.handling.burials import RecordBuried
from leaderq.kafka.handling.context import HandlingContext, RecordOrder, is_side_by_side
from leaderq.kafka.handling.on_error import Ending, HoldUp, RetryAfter
from leaderq.kafka.handling.parts import (
    SLICE_S,
    BatchPart,
    PartFailure,
    Start,
    attempt,
    attempt_awaited,
)
from leaderq.kafka.record import Batch, Partition, Record, after
from leaderq.kafka.stores.handle_call import Effect, effects_kept
from leaderq.term import Term
from leaderq.threads import Waker, primitives

SLIDES_FOR_S = 5.0
Check = Callable[[], bool]


def handler_for(context: HandlingContext) -> BatchHandler:
    slides = is_side_by_side(context.coroutines, context.order, context.workers)
    return BatchHandler(context, SideBySideWork if slides else BatchWork)


class Chain:
    """Records to be handled in order. ``part``: the next record and its attempts, once it has
    failed.
    """

    __slots__ = ("name", "part", "records", "turns")

    def __init__(self, name: object) -> None:
        self.name = name
        self.records: deque[Record] = deque()
        self.turns: deque[int] = deque()
        self.part: BatchPart | None = None


class Window:
    """The chains of what is in hand, and which is to go on next. For all threads."""

    def __init__(self, order: RecordOrder) -> None:
        self._order = order
        self._lock = primitives.Lock()
        self._chains: dict[object, Chain] = {}
        self._ready: list[tuple[int, int, int, Chain]] = []
        self._begun: dict[Partition, int] = {}
        self._turn = 0
        self._ties = count()
        self.done = 0

    @property
    def is_empty(self) -> bool:
        return not self._chains

    @property
    def ready(self) -> int:
        return len(self._ready)

    def add(self, records: Sequence[Record]) -> None:
        """Records that were added before go first, and among them the longest chains, because they
        decide how long these take.
        """
        with self._lock:
            self._turn += 1
            fresh = []
            for record in records:
                name = self._name(record)
                if (chain := self._chains.get(name)) is None:
                    chain = self._chains[name] = Chain(name)
                    fresh.append(chain)
                chain.records.append(record)
                chain.turns.append(self._turn)
            for chain in fresh:
                heappush(self._ready, self._place(chain))

    def _name(self, record: Record) -> object:
        own: object = None
        if self._order is not RecordOrder.PARTITION:
            is_alone = self._order is RecordOrder.NONE or record.key is None
            own = record.offset if is_alone else record.key
        return record.topic, record.partition, own

    def _place(self, chain: Chain) -> tuple[int, int, int, Chain]:
        return chain.turns[0], -len(chain.records), next(self._ties), chain

    def restart(self) -> None:
        """All chains that are left may go on, those that failed too; none does now."""
        self._ready = [self._place(chain) for chain in self._chains.values()]
        heapify(self._ready)

    def begin(self, may_begin: Check, may_finish: Check) -> Chain | None:
        """The chain whose next record is to be handled now, noted as begun; ``None``: none is.
        ``may_finish``: where no record may begin, those in front of one that has begun may.
        """
        with self._lock:
            is_open = may_begin()
            is_trusted = is_open or may_finish()
            while self._ready:
                chain = heappop(self._ready)[-1]
                record = chain.records[0]
                where = record.topic_partition
                begun = self._begun.get(where, -1)
                if is_open:
                    self._begun[where] = max(begun, record.offset)
                if is_open or (is_trusted and record.offset < begun):
                    return chain
        return None

    def advance(self, chain: Chain) -> None:
        """The chain's next record is done, or passed over."""
        with self._lock:
            chain.records.popleft()
            chain.turns.popleft()
            chain.part = None
            self.done += 1
            if chain.records:
                heappush(self._ready, self._place(chain))
            else:
                del self._chains[chain.name]


class DonePrefix:
    """How far each partition may be committed, and what is stored with that. For one thread, except
    for :meth:`add`.
    """

    def __init__(self) -> None:
        self._left: dict[Partition, deque[Record]] = {}
        self._done: dict[tuple[str, int, int], Sequence[Effect]] = {}
        self._through: dict[Partition, int] = {}
        self._ends: dict[Partition, int] = {}

    def __len__(self) -> int:
        """How many records are not in the prefix."""
        return sum(map(len, self._left.values()))

    def extend(self, batch: Batch) -> None:
        """These follow those that are there."""
        self._ends.update(batch.ends)
        for where, rows in batch.records.items():
            self._left.setdefault(where, deque()).extend(rows)

    def add(self, record: Record, effects: Sequence[Effect] = ()) -> None:
        self._done[record.topic, record.partition, record.offset] = effects

    def grown(self) -> list[tuple[Record, Sequence[Effect]]]:
        """What has joined the prefix since this was called before, partition by partition."""
        found = []
        for where, rows in self._left.items():
            while rows and (place := (*where, rows[0].offset)) in self._done:
                record = rows.popleft()
                found.append((record, self._done.pop(place)))
                self._through[where] = after(record)
        return found

    def ends(self) -> dict[Partition, int]:
        """The offset behind the last record of each partition's prefix, where there is one."""
        whole = {where: end for where, end in self._ends.items() if not self._left.get(where)}
        return self._through | whole


class SideBySideWork(BatchWork):
    """The work on one batch, and on what is taken in meanwhile; used once."""

    def __init__(self, handler: BatchHandler, batch: Batch, term: Term) -> None:
        super().__init__(handler, batch, term)
        self._handler = handler
        self._window = Window(self._context.order)
        self._prefix = DonePrefix()
        self._prefix.extend(batch)
        self._outcomes: list[tuple[Chain, PartFailure]] = []
        self._failed: list[tuple[Chain, BatchPart, PartFailure]] = []
        self._set_aside: set[str] = set()
        context = self._context
        slides = context.more is not None and context.rate_limit is None
        self._slides_until_s = clock.now_s() + SLIDES_FOR_S if slides else 0.0
        # A record that kills is found by deaths at one offset: none is committed in front of it.
        is_suspect = context.marks is not None and term.unclean and handler.trusted != term.id
        self._commits_meanwhile = slides and not is_suspect
        self._waker = Waker()
        self._is_stopped = False
        self._started = self._told = 0
        self._returns: list[None] = []
        self._due = max(1, len(self._prefix) // 4)  # so many are done when the next commit is due

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
            self._window.add(records)
            try:
                is_done = self._follow_all()
            except UnitAbandoned:  # coroutines were cancelled
                if self._is_trusted():
                    self._commit_done()
                raise
            if not is_done:
                self._commit_done()
                return False
        self._commit_done(all_done=True)
        self._handler.trusted = self._term.id
        context.figures.batches += 1
        return True

    def _follow_all(self) -> bool:
        while not self._window.is_empty:
            if self._is_to_stop():
                return False
            self._began = True
            self._follow_once()
            if (wait_s := self._judge()) is not None:
                self._commit_done()
                self._term.wait(wait_s)
        return True

    def _follow_once(self) -> None:
        """Follow each to its end or its first failure; these are then in ``_failed``."""
        self._outcomes, self._failed = [], []
        self._started, self._returns, self._is_stopped = 0, [], False
        self._window.restart()
        coroutines = self._context.coroutines
        try:
            if coroutines is not None:
                coroutines.run(self, self._follow_awaited, self._term)
            else:
                assert self._workers is not None
                self._workers.run_shared(self, self._follow)
        finally:  # also where coroutines were cancelled: what is done is done
            self._tell_handled()
        self._pass_on((BatchPart([chain.records[0]]), why) for chain, why in self._outcomes)
        self._failed = [self._counted(*each) for each in self._outcomes]

    def supply(self, start: Start) -> None:
        """Until all have ended: commit what is done, and take in what there is room for. On a
        thread of its own where coroutines work; nobody else touches the store meanwhile.
        """
        self._top_up(start)
        while self._busy and not self._is_stopped:
            if self._is_due():
                self._commit_done()
            elif not self._may_take_in():
                self._waker.wait(SLICE_S)
            elif self._took_in():
                self._top_up(start)

    @property
    def _busy(self) -> int:
        return self._started - len(self._returns)

    def _top_up(self, start: Start) -> None:
        self._started += start(self._window.ready, self._busy)

    def _is_due(self) -> bool:
        return self._commits_meanwhile and self._window.done >= self._due

    def _may_take_in(self) -> bool:
        is_open = not self._outcomes and self._may_begin()
        return is_open and clock.now_s() < self._slides_until_s

    def _took_in(self) -> bool:
        more = self._context.more
        assert more is not None
        is_enough = lambda: self._is_due() or not self._busy or self._is_stopped  # noqa: E731
        batch = more(self._term, SLICE_S, is_enough)
        if batch is None:
            return False
        if self._context.careful(batch.records):
            self._slides_until_s = 0.0  # it is handed out again, and handled otherwise
            return False
        self._prefix.extend(batch)
        self._window.add(batch.merged())
        return True

    def has_ended(self) -> None:
        self._returns.append(None)
        self._waker.wake()

    def stop(self) -> None:
        self._is_stopped = True
        self._waker.wake()

    def _begin(self) -> Chain | None:
        return self._window.begin(self._may_begin, self._may_finish)

    def _may_begin(self) -> bool:
        return not self._is_stopped and super()._may_begin()

    def _may_finish(self) -> bool:
        return not self._is_stopped and self._is_trusted()

    def _is_trusted(self) -> bool:
        """Also when the term is to end."""
        return not self._term.paused and self._term.remaining_s() > 0

    def _follow(self) -> None:
        """On a worker's thread."""
        context = self._context
        while chain := self._begin():
            one = (chain.records[0],)
            with effects_kept() as effects:
                failure = attempt(context.decode, context.handle, one, self._term)
            self._note(chain, failure, effects)

    async def _follow_awaited(self, term: AsyncTerm) -> None:
        """On the event loop."""
        context, coroutines = self._context, self._context.coroutines
        assert coroutines is not None
        while chain := self._begin():
            one = (chain.records[0],)
            with effects_kept() as effects:
                failure = await attempt_awaited(context.decode, coroutines.handle, one, term)
            self._note(chain, failure, effects)

    def _note(self, chain: Chain, failure: PartFailure | None, effects: Sequence[Effect]) -> None:
        if failure is not None:
            self._outcomes.append((chain, failure))
            return
        self._advance(chain, effects)
        if self._is_due():
            self._waker.wake()

    def _advance(self, chain: Chain, effects: Sequence[Effect]) -> None:
        """The chain's next record is done, or passed over."""
        self._prefix.add(chain.records[0], effects)
        self._window.advance(chain)

    def _tell_handled(self) -> None:
        count, self._told = self._window.done - self._told, self._window.done
        if count:
            self._handled(count)

    def _counted(self, chain: Chain, failure: PartFailure) -> tuple[Chain, BatchPart, PartFailure]:
        part = chain.part = chain.part or BatchPart([chain.records[0]])
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
                self._hold_ups.note_passed_over(part.records[0], failure.error)
                self._pass_over(chain, part, failure.error)
        return max(waits, default=None)

    def _pass_over(self, chain: Chain, part: BatchPart, error: BaseException) -> None:
        record = part.records[0]
        self._commit_done()
        letter = self._letter(record, error, part.attempts)
        self._set_aside.add(record.place)
        self._told += 1
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
        self._tell_handled()
        grown, ends = self._prefix.grown(), self._prefix.ends()
        try:
            self._store(grown, ends, is_last=all_done)
        except EffectRefused:
            self._context.undo()
            for one in grown:
                self._store_alone(*one)
            self._store([], ends, is_last=all_done)
        self._due = self._window.done + max(1, len(self._prefix) // 4)
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
        self._hold_ups.note_passed_over(record, error)
        try:
            self._store([(record, letter)], ends)
        except EffectRefused as exc:
            raise exc.error from error
