"""One call of the user's ``handle``, on a thread or awaited, and how it has failed; and several
calls side by side: on threads, or as coroutines on a career's event loop. Each thread or coroutine
follows one chain after the other.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

from leaderq.async_term import AsyncTerm
from leaderq.base import clock, host
from leaderq.base.arguments import require_finished
from leaderq.errors import AlreadyStored, leaves
from leaderq.kafka.handling.on_error import PoisonRecord, not_about_records
from leaderq.kafka.record import Record
from leaderq.observability import tracing
from leaderq.running.stages import called_here
from leaderq.term import Term
from leaderq.threads import SerialExecutor, SubmittedWork, TaskWaker, Waker
from leaderq.threads.event_loops import calls_told, started

if TYPE_CHECKING:
    import asyncio

SLICE_S = 0.2  # how late an exception raised in the waiting thread is delivered
_CLOSE_S = 5.0
Start = Callable[[int, int], int]
"""Lets at most so many workers begin, where so many are busy; returns how many have begun."""

_DEPTH = 10


@dataclass(frozen=True)
class CallFailure:
    """A call that failed. ``index``: the culprit's place among the records that :func:`attempt` was
    given, if known; ``touched``: the user's handle ran, so the records in front of the culprit are
    done; ``is_outage``: the failure does not count against the records; ``is_raised``: the error is
    not about records, and ends the work.
    """

    error: BaseException
    index: int | None = None
    touched: bool = True
    is_outage: bool = False
    is_raised: bool = False


Decode = Callable[[Record], Record]
Handle = Callable[[Sequence[Record], Term], None]
HandleAwaited = Callable[[Sequence[Record], AsyncTerm], Coroutine[Any, Any, object]]


def attempt(
    decode: Decode | None, handle: Handle, records: Sequence[Record], term: Term
) -> CallFailure | None:
    """Decode all ``records``, then call ``handle`` once with them. Returns ``None`` if that went
    well, else the failure, whatever was raised.
    """
    handed = _decoded(decode, records)
    if isinstance(handed, CallFailure):
        return handed
    try:
        returned: object = handle(handed, term)  # type: ignore[func-returns-value]
        require_finished(returned, "handle")
    except BaseException as exc:  # noqa: BLE001  (one record may call for sys.exit)
        return _judged(records, exc)
    return None


async def attempt_awaited(
    decode: Decode | None, handle: HandleAwaited, records: Sequence[Record], term: AsyncTerm
) -> CallFailure | None:
    """Do the same as :func:`attempt` with a coroutine function, in a task of its own: what a
    handler does to its task, or sets in its context, does not reach the next call. Raises
    CancelledError if it is cancelled because the term ends.
    """
    from asyncio import CancelledError, create_task

    handed = _decoded(decode, records)
    if isinstance(handed, CallFailure):
        return handed

    async def call() -> CallFailure | None:
        try:
            require_finished(await handle(handed, term), "handle")
        except GeneratorExit as exc:  # a task that ends with this one ends whoever awaits it
            return _judged(records, exc)
        return None

    try:
        return await create_task(call())
    except CancelledError as exc:
        if term.is_ending:
            raise
        return _judged(records, exc)  # of its own making
    except GeneratorExit:  # this coroutine is thrown away
        raise
    except BaseException as exc:  # noqa: BLE001
        return _judged(records, exc)


def _decoded(decode: Decode | None, records: Sequence[Record]) -> Sequence[Record] | CallFailure:
    if decode is None:
        # A copy where it is a list: the user may empty what was handed over, and then raise.
        return list(records) if isinstance(records, list) else records
    decoded: list[Record] = []
    try:
        for record in records:
            found = decode(record)
            require_finished(found.key, "key_deserializer")
            require_finished(found.value, "value_deserializer")
            decoded.append(found)
    except BaseException as exc:  # noqa: BLE001
        return _failure(exc, len(decoded), touched=False)
    return decoded


def _judged(records: Sequence[Record], error: BaseException) -> CallFailure:
    index = place_in(records, error.record) if isinstance(error, PoisonRecord) else None
    return _failure(error, index, touched=True)


def _failure(error: BaseException, index: int | None, *, touched: bool) -> CallFailure:
    """Return the failure of a call. It holds the user's own error (what a ``PoisonRecord`` was
    raised from), or the error within that which is not about records, or an ``AlreadyStored`` that
    the user has wrapped, because no record that is stored may become a dead letter.
    """
    own = error
    if isinstance(error, PoisonRecord) and error.__cause__ is not None:
        own = error.__cause__
    other = not_about_records(own)
    own = next((each for each in _causes(own) if isinstance(each, AlreadyStored)), own)
    return CallFailure(other or own, index, touched, is_raised=other is not None)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The errors in ``error``, if it is a group, and what it was raised from, and so on."""
    for _ in range(_DEPTH):  # they may form a circle
        if error is None:
            return
        yield from leaves(error)
        error = error.__cause__


class HandleCalls:
    """Calls ``handle``, on any thread; :meth:`awaited` does the same on the event loop of a career
    of coroutines. It knows which calls, each :meth:`noted` together with what deserialises its
    records, have not returned, because one may hang. A child that ``handle`` has forked ends when
    it comes back: nothing that it does here is its own to do.
    """

    def __init__(self, handle: Handle, handle_awaited: HandleAwaited | None = None) -> None:
        self._handle = handle
        self._handle_awaited = handle_awaited
        self._pid = host.pid()
        self.reads: tuple[str, object] = "", ()  # the group and the topics, for traces
        self._running: dict[object, tuple[float, Sequence[Record]]] = {}

    def __call__(self, records: Sequence[Record], term: Term) -> None:
        with tracing.of_records(records, term, *self.reads):
            return called_here(partial(self._handled, records, term), self._pid)

    def _handled(self, records: Sequence[Record], term: Term) -> None:
        try:
            return self._handle(records, term)
        except PoisonRecord as poison:
            if isinstance(poison.__cause__, SystemExit) and host.has_forked_from(self._pid):
                raise poison.__cause__ from None  # how the child is to end
            raise

    async def awaited(self, records: Sequence[Record], term: AsyncTerm) -> object:
        assert self._handle_awaited is not None
        with tracing.of_records(records, term, *self.reads):
            return await self._handle_awaited(records, term)

    @contextmanager
    def noted(self, records: Sequence[Record]) -> Iterator[None]:
        call = object()
        try:
            self._running[call] = clock.now_s(), records
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


def place_in(records: Sequence[Record], culprit: Record) -> int | None:
    """Return the index of ``culprit``, decoded or raw, in ``records``, or ``None``."""
    wanted = (culprit.topic, culprit.partition, culprit.offset)
    for index, record in enumerate(records):
        if record.offset == wanted[2] and (record.topic, record.partition, record.offset) == wanted:
            return index
    return None


class SharedWork:
    """Work that several workers share. ``supply(start)`` lets them begin, and returns when no other
    is to begin. After ``stop`` all of them end soon.
    """

    def __init__(self) -> None:
        self.waker = Waker()
        self.is_stopped = False
        self.started = 0
        self.ended: list[None] = []  # one for each worker, because adding to it needs no lock

    def supply(self, start: Start) -> None:
        raise NotImplementedError

    @property
    def busy(self) -> int:
        return self.started - len(self.ended)

    def has_ended(self) -> None:
        """Called for each worker that has ended."""
        self.ended.append(None)
        self.waker.wake()

    def stop(self) -> None:
        self.is_stopped = True
        self.waker.wake()


class ThreadWorkers:
    """Up to ``count`` threads, made when first needed, for one :meth:`run` at a time. If ``run`` is
    interrupted while it waits, it stops the work, and still waits for the threads that have begun,
    because the user's code must not go on while ``handOver`` runs.
    """

    def __init__(self, count: int, name: str) -> None:
        self._threads = [SerialExecutor(f"{name}-{number}") for number in range(count)]

    def run(self, work: SharedWork, follow: Callable[[], None]) -> None:
        """Do the work; returns when all workers have ended. ``work.supply`` is called on this
        thread, ``follow`` on each worker.
        """
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


def _wait_for(begun: Iterable[SubmittedWork]) -> None:
    for each in begun:
        while not each.done(SLICE_S):
            pass


class CoroutineWorkers:
    """Up to ``count`` coroutines at a time on the event loop of a career, for one :meth:`run` at a
    time. ``on_loop(code, term)`` awaits ``code(async_term)`` on the loop and then returns; it
    raises ``UnitAbandoned`` if that was cancelled because the term ends.
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
        """Do the work; returns when all coroutines have ended. ``work.supply`` is called on a
        thread of its own, ``follow`` in each coroutine.
        """
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
        _raise_first(tasks)
        supplying.result()


def _raise_first(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Raise what a coroutine of ours has raised: no failure of a record, for that was noted."""
    for task in tasks:
        if not task.cancelled():
            task.result()


async def _despite_others(wait: Awaitable[object], term: AsyncTerm) -> None:
    """Await ``wait``. If it is cancelled, raise only if the term is ending: a handler may have
    cancelled all tasks of the loop.
    """
    from asyncio import CancelledError

    try:
        await wait
    except CancelledError:
        if term.is_ending:
            raise
