"""Parts of a batch: what is handed over in one call, one attempt at it, and how a part that failed
is cut around the culprit.

An attempt may run on one of several worker threads (:class:`PartitionWorkers`); all else is pure.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from leaderq.async_term import AsyncTerm
from leaderq.base import clock
from leaderq.base.arguments import require_finished
from leaderq.errors import AlreadyStored
from leaderq.kafka.handling.on_error import PoisonRecord, not_about_records
from leaderq.kafka.record import Batch, Partition, Record, after
from leaderq.kafka.stores.handle_call import HandleCall
from leaderq.observability import tracing
from leaderq.term import Term
from leaderq.threads import SerialExecutor, SubmittedWork, TaskWaker
from leaderq.threads.event_loops import calls_told, started


class PartMode(Enum):
    """How the records of a part are handed over."""

    TOGETHER = "together"
    ISOLATED = "isolated"
    """One by one, because one of them made them fail together, and it is not known which."""
    CAREFUL = "careful"
    """One by one, each marked durably before, because one of them may kill the process."""


@dataclass(frozen=True)
class PartFailure:
    """An attempt at a part that failed. ``index``: the culprit's place, if known; ``touched``: the
    user's handle ran, so all before it is done; ``is_outage``: nothing counts against the records;
    ``is_raised``: the error is not about records, and ends the work.
    """

    error: BaseException
    index: int | None
    touched: bool
    is_outage: bool = False
    is_raised: bool = False

    @property
    def done(self) -> int:
        """How many records before the culprit are done."""
        return self.index or 0 if self.touched else 0


@dataclass(eq=False)
class BatchPart:
    """The next records of their partitions, and how they have fared so far.

    ``ends`` are to be committed once they are done (``None``: after each last record). ``failed``
    counts their own failed attempts, ``before`` those within a larger part; ``failure`` is to be
    judged. ``at_once``: committed as soon as it is done. ``marked``: its durable mark is set.
    ``passed_over``: skipped, or set aside.
    """

    records: Sequence[Record]
    ends: Mapping[Partition, int] | None = None
    mode: PartMode = PartMode.TOGETHER
    at_once: bool = False
    failed: int = 0
    before: int = 0
    failure: PartFailure | None = None
    marked: bool = False
    passed_over: bool = False

    @property
    def is_committed_at_once(self) -> bool:
        return self.at_once or self.mode is not PartMode.TOGETHER

    @property
    def attempts(self) -> int:
        return self.before + self.failed

    def failed_with(self, failure: PartFailure) -> int:
        """How many failed attempts its culprit will have made by itself, once it is cut out."""
        return 1 if failure.index is not None and len(self.records) > 1 else self.failed + 1

    def head(self) -> tuple[BatchPart, BatchPart | None]:
        if len(self.records) == 1:
            return self, None
        first = BatchPart(self.records[:1], None, self.mode, before=self.before)
        return first, BatchPart(self.records[1:], self.ends, self.mode, before=self.before)

    def isolated(self) -> BatchPart:
        return BatchPart(self.records, self.ends, PartMode.ISOLATED, before=self.attempts)

    def again(self) -> BatchPart:
        """The same records once more, their effects undone; committed as soon as they are done."""
        return BatchPart(self.records, self.ends, at_once=True)

    def after_refusal(self, error: Exception) -> list[BatchPart]:
        """What to do again, each committed as soon as it is done, when the effects of this part are
        refused: its halves; of a single record, the record is at fault.
        """
        if (middle := len(self.records) // 2) == 0:
            self.cut(PartFailure(error, None, touched=True))
            self.at_once = True
            return [self]
        halves = self.records[:middle], self.records[middle:]
        return [BatchPart(records, at_once=True, before=self.before) for records in halves]

    def together(self) -> BatchPart:
        """The same records, to be handed over together and with nothing counted against them."""
        return BatchPart(self.records, self.ends)

    def without(self, partition: Partition) -> BatchPart | None:
        rest = [record for record in self.records if record.topic_partition != partition]
        if len(rest) == len(self.records):
            return self
        return replace(self, records=rest, ends=None) if rest else None

    def done_after(self, failure: PartFailure | None) -> tuple[BatchPart | None, BatchPart | None]:
        """What is done after an attempt, and what of the rest is to be handed over as it is: after
        ``AlreadyStored`` the records that are not stored.
        """
        if failure is None:
            return self, None
        if not isinstance(stored := failure.error, AlreadyStored):
            return None, None
        rows: dict[bool, list[Record]] = {True: [], False: []}
        for record in self.records:
            is_its = record.topic_partition == stored.where
            rows[is_its and record.offset < stored.stored].append(record)
        done, left = rows[True], rows[False]
        if not done:
            return None, None  # not about these records: it is judged
        rest = replace(self, records=left, ends=None) if left else None
        return replace(self, records=done, ends=None), rest

    def cut(self, failure: PartFailure) -> tuple[BatchPart | None, BatchPart, BatchPart | None]:
        at = failure.index
        if at is None or len(self.records) == 1:
            self.failed += not failure.is_outage
            self.failure = failure
            return None, self, None
        before = BatchPart(self.records[:at], at_once=True) if at else None
        culprit = BatchPart(self.records[at : at + 1], at_once=True, before=self.attempts)
        culprit.failed, culprit.failure = int(not failure.is_outage), failure
        behind = self.records[at + 1 :]
        return before, culprit, BatchPart(behind, self.ends) if behind else None


def ends_of(part: BatchPart, batch: Batch) -> Mapping[Partition, int]:
    """The offsets to commit when this part is done; with a partition's last record comes its end in
    the batch, which may lie further on (transaction markers).
    """
    if part.ends is not None:
        return part.ends
    last = {record.topic_partition: record for record in part.records}
    return {
        where: batch.ends[where] if batch.records[where][-1].offset == end.offset else after(end)
        for where, end in last.items()
    }


def place_in(records: Sequence[Record], culprit: Record) -> int | None:
    """The index of ``culprit``, decoded or raw, among these; ``None`` if it is not there."""
    wanted = (culprit.topic, culprit.partition, culprit.offset)
    for index, record in enumerate(records):
        if record.offset == wanted[2] and (record.topic, record.partition, record.offset) == wanted:
            return index
    return None


def by_partition(records: Sequence[Record]) -> dict[Partition, list[Record]]:
    grouped: dict[Partition, list[Record]] = {}
    for record in records:
        grouped.setdefault(record.topic_partition, []).append(record)
    return grouped


Decode = Callable[[Record], Record]
Handle = Callable[[Sequence[Record], Term], None]
HandleAwaited = Callable[[Sequence[Record], AsyncTerm], Coroutine[Any, Any, object]]


def attempt(
    decode: Decode | None, handle: Handle, records: Sequence[Record], term: Term
) -> PartFailure | None:
    """Decode all, then handle; returns ``None`` when that went well, else the failure, whatever
    was raised.
    """
    handed = _decoded(decode, records)
    if isinstance(handed, PartFailure):
        return handed
    return _judged(records, _caught(partial(_handle, handle, handed, term)))


async def attempt_awaited(
    decode: Decode | None, handle: HandleAwaited, records: Sequence[Record], term: AsyncTerm
) -> PartFailure | None:
    """As :func:`attempt`, in a task of its own: what the handler does to its task, or sets in its
    context, is not the next one's. Raises CancelledError if it is cancelled because the term ends.
    """
    from asyncio import CancelledError, create_task

    handed = _decoded(decode, records)
    if isinstance(handed, PartFailure):
        return handed
    error: BaseException | None = None
    try:
        require_finished(await create_task(handle(handed, term)), "handle")
    except CancelledError as exc:
        if term.is_ending:
            raise
        error = exc  # of its own making
    except GeneratorExit:  # this coroutine is thrown away
        raise
    except BaseException as exc:  # noqa: BLE001
        error = exc
    return _judged(records, error)


def _decoded(decode: Decode | None, records: Sequence[Record]) -> Sequence[Record] | PartFailure:
    if decode is None:
        # A copy where it is a list: the user may empty what was handed over, and then raise.
        return list(records) if isinstance(records, list) else records
    decoded: list[Record] = []
    error = _caught(partial(_decode, decode, records, decoded))
    if error is not None:
        return _failure(error, len(decoded), touched=False)
    return decoded


def _judged(records: Sequence[Record], error: BaseException | None) -> PartFailure | None:
    if error is None:
        return None
    index = place_in(records, error.record) if isinstance(error, PoisonRecord) else None
    return _failure(error, index, touched=True)


def _caught(user_code: Callable[[], object]) -> BaseException | None:
    """The error raised, of any kind: one record may call for ``sys.exit`` whoever handles it."""
    try:
        user_code()
    except BaseException as exc:  # noqa: BLE001
        return exc
    return None


def _decode(decode: Decode, records: Sequence[Record], decoded: list[Record]) -> None:
    for record in records:
        found = decode(record)
        require_finished(found.key, "key_deserializer")
        require_finished(found.value, "value_deserializer")
        decoded.append(found)


def _handle(handle: Handle, records: Sequence[Record], term: Term) -> None:
    returned: object = handle(records, term)  # type: ignore[func-returns-value]
    require_finished(returned, "handle")


def _failure(error: BaseException, index: int | None, *, touched: bool) -> PartFailure:
    """With the user's own error, or with the one in it that is not about records."""
    own = error
    if isinstance(error, PoisonRecord) and error.__cause__ is not None:
        own = error.__cause__
    other = not_about_records(own)
    return PartFailure(other or own, index, touched, is_raised=other is not None)


class HandleCalls:
    """Calls ``handle``, on any thread, and knows which calls have not returned: one may hang.
    ``awaited``: the same for the event loop of a career of coroutines.
    """

    def __init__(self, handle: Handle, handle_awaited: HandleAwaited | None = None) -> None:
        self._handle = handle
        self._handle_awaited = handle_awaited
        self.reads: tuple[str, object] = "", ()  # the group and the topics, for traces
        self._running: dict[object, tuple[float, Sequence[Record]]] = {}

    def __call__(self, records: Sequence[Record], term: Term) -> None:
        with self._noted(records), tracing.of_records(records, term, *self.reads):
            return self._handle(records, term)

    async def awaited(self, records: Sequence[Record], term: AsyncTerm) -> object:
        assert self._handle_awaited is not None
        with self._noted(records), tracing.of_records(records, term, *self.reads):
            return await self._handle_awaited(records, term)

    @contextmanager
    def _noted(self, records: Sequence[Record]) -> Iterator[None]:
        call = HandleCall()
        self._running[call] = clock.now_s(), records
        try:
            with call:
                yield
        finally:
            self._running.pop(call, None)

    def overdue(self, budget_s: float) -> list[str]:
        """Calls that have taken longer than ``budget_s`` seconds, each as a sentence."""
        now, running = clock.now_s(), list(self._running.values())
        what = "handle has been called for %.1f s with %d record(s) from %s"
        return [
            what % (now - began_s, len(records), records[0].place)
            for began_s, records in running
            if now - began_s > budget_s
        ]


T = TypeVar("T")
SLICE_S = 0.2  # how late an exception raised in the waiting thread is delivered
_CLOSE_S = 5.0
Start = Callable[[int, int], int]
"""Begins to follow, so many times if so many may, where so many do; returns how many have begun."""


class SharedWork(Protocol):
    """Work for several at a time, each of whom does one piece after the other until there are none.
    ``supply(start)`` has that begun, and returns when nobody else is to begin; ``has_ended`` is
    called for each who has ended. After ``stop`` all of them end soon.
    """

    def supply(self, start: Start) -> None: ...

    def has_ended(self) -> None: ...

    def stop(self) -> None: ...


class PartitionWorkers:
    """Up to ``count`` threads, made when first needed, for one :meth:`run` at a time. Interrupted
    while it waits, it begins no further task and still waits for those begun: the user's code must
    not go on behind the back of ``handOver``.
    """

    def __init__(self, count: int, name: str) -> None:
        self._threads = [SerialExecutor(f"{name}-{number}") for number in range(count)]

    def run(self, tasks: Sequence[Callable[[], T]], may_begin: Callable[[], bool]) -> dict[int, T]:
        """What the tasks have returned, by index, as far as they were begun."""
        work = _Tasks(tasks, may_begin)
        self.run_shared(work, work.follow)
        return work.outcomes

    def run_shared(self, work: SharedWork, follow: Callable[[], None]) -> None:
        """``supply`` is called on the calling thread, ``follow`` by each worker."""
        begun: dict[SerialExecutor, SubmittedWork] = {}

        def work_off() -> None:
            try:
                follow()
            finally:
                work.has_ended()

        def start(most: int, _busy: int) -> int:
            is_free = lambda each: each not in begun or begun[each].ended(0.0)  # noqa: E731
            free = list(islice(filter(is_free, self._threads), most))
            for thread in free:
                begun[thread] = thread.submit(work_off)
            return len(free)

        try:
            work.supply(start)
            _wait_for(begun.values())
        except BaseException:
            work.stop()
            _wait_for(begun.values())
            raise

    def close(self) -> None:
        """End the threads; one that hangs is left alone after 5 s. May be called twice."""
        for thread in self._threads:
            thread.close(_CLOSE_S)


class _Tasks(Generic[T]):
    def __init__(self, tasks: Sequence[Callable[[], T]], may_begin: Callable[[], bool]) -> None:
        self.outcomes: dict[int, T] = {}
        self._tasks, self._may_begin = tasks, may_begin
        self._todo = deque(range(len(tasks)))

    def supply(self, start: Start) -> None:
        start(len(self._todo), 0)

    def follow(self) -> None:
        with suppress(IndexError):  # none is left
            while True:
                if not self._may_begin():
                    self._todo.clear()  # once for all
                index = self._todo.popleft()
                self.outcomes[index] = self._tasks[index]()

    def has_ended(self) -> None:
        return

    def stop(self) -> None:
        self._todo.clear()


class CoroutineWorkers:
    """Up to ``count`` coroutines at a time on the event loop of a career, for one :meth:`run` at a
    time. ``on_loop(code, term)`` returns when ``code(async_term)`` has been awaited; it raises
    ``UnitAbandoned`` where that was cancelled because the term ends.
    """

    def __init__(
        self,
        count: int,
        handle: HandleAwaited,
        on_loop: Callable[[Callable[[AsyncTerm], Awaitable[None]], Term], None],
    ) -> None:
        self.handle = handle
        self._count = count
        self._on_loop = on_loop

    def run(
        self,
        work: SharedWork,
        follow: Callable[[AsyncTerm], Coroutine[Any, Any, None]],
        term: Term,
    ) -> None:
        """``supply`` is called on a thread of its own, ``follow`` by each coroutine."""
        self._on_loop(partial(self._side_by_side, work, follow), term)

    async def _side_by_side(
        self,
        work: SharedWork,
        follow: Callable[[AsyncTerm], Coroutine[Any, Any, None]],
        term: AsyncTerm,
    ) -> None:
        import asyncio

        loop, context, waker = asyncio.get_running_loop(), copy_context(), TaskWaker()
        tasks: list[asyncio.Task[None]] = []

        def begin(count: int) -> None:
            for _ in range(count):
                task = loop.create_task(follow(term))
                task.add_done_callback(lambda _: work.has_ended())
                tasks.append(task)

        def start(most: int, busy: int) -> int:
            count = max(0, min(most, self._count - busy))
            loop.call_soon_threadsafe(partial(begin, count), context=context)
            return count

        supplying = started(partial(work.supply, start), "leaderq-supply")
        if (tell := calls_told.get()) is not None:
            tell(supplying)
        supplying.add_done_callback(lambda _: waker.wake())
        try:
            while not supplying.done():
                await _despite_others(waker.wait(), term)
        except BaseException:
            work.stop()
            raise
        if supplying.exception() is not None:
            work.stop()
        while left := [task for task in tasks if not task.done()]:
            await _despite_others(asyncio.wait(left), term)
        supplying.result()


async def _despite_others(wait: Awaitable[object], term: AsyncTerm) -> None:
    """Await it, also where a handler has cancelled all tasks of the loop."""
    from asyncio import CancelledError

    try:
        await wait
    except CancelledError:
        if term.is_ending:
            raise


def _wait_for(begun: Iterable[SubmittedWork]) -> None:
    for each in begun:
        while not each.done(SLICE_S):
            pass
