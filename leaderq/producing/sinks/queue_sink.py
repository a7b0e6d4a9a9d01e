"""A ZooKeeper queue as a sink, known only by its ``put_many``.

The queue is authoritative. A put goes on waiting while the servers are away, and is stored once, in
its place, when they are back. So a batch is put on a thread of the sink's own; while that lasts the
producer is told *busy*, and asks again about the same batch. On each failure:

* **the servers are away**: busy; nothing is put twice;
* **an item is too large, the queue says of an item that the serializer raised, or an error is named
  in** ``refuses``: that record is refused, with the error; the others are stored;
* **the outcome is unknown** (``ConnectionLost``): the record is put again, and may be there twice;
* **any other error** (access refused, the session or the queue closed, one that nobody knows): the
  queue's, not a record's. The sink is broken; all is put again, and nothing is given up;
* **the process is killed**: what was put and not confirmed is put again from the journal, and may
  be there twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from leaderq.errors import (
    ConfigurationError,
    ConnectionLost,
    LeaderqError,
    PutsFailed,
    SinkBroken,
    SinkBusy,
    TooLarge,
)
from leaderq.plain import require_plain_function
from leaderq.producing.sinks.sink import ALL_CONFIRMED, BatchOutcome, checked_refuses
from leaderq.threads import Service

MAX_ITEMS = 100
"""Items of one call: a queue remembers that many failures, so each item can be told apart."""


class PutsMany(Protocol):
    """What is asked of a queue."""

    def put_many(self, items: Any, **options: Any) -> int | None:
        """Put each item, in order, and return when all are stored."""


class QueueSink:
    """Puts records into a started queue: any recipe of :mod:`leaderq.queues` that was not made with
    ``put_in_background``.

    ``options`` go to each ``put_many`` (``priority=3``). Records are what ``put_many`` takes:
    values, or for an id queue pairs of value and id. ``put_many`` may be another callable, such as
    ``SimpleDistributedQueue.offer_many``. ``refuses``: errors that ``put_many`` raises for a record
    that it will never take, besides those of the module. The queue stays the caller's, who closes
    it after the producer.

    *Guarantees:* confirmed means stored. Order is kept. Nothing is given up but what the module
    names.
    *Not guaranteed:* that nothing is there twice, after an unknown outcome or a crash.

    :raises ConfigurationError: there is neither a queue nor a ``put_many`` that will do.
    """

    def __init__(
        self,
        queue: PutsMany | None = None,
        *,
        put_many: Callable[..., object] | None = None,
        refuses: tuple[type[Exception], ...] = (),
        **options: Any,
    ) -> None:
        if put_many is None:
            if queue is None or not hasattr(queue, "put_many"):
                raise ConfigurationError(f"QueueSink needs a queue, or put_many; got {queue!r}")
            put_many = queue.put_many
        require_plain_function(put_many, "put_many")
        self._put_many = put_many
        self._refuses: tuple[type[Exception], ...] = (TooLarge, *checked_refuses(refuses))
        self._options = options
        self._current: _Putting | None = None

    def send(self, batch: Sequence[Any], timeout_s: float) -> BatchOutcome:
        part = batch[:MAX_ITEMS]
        putting = self._current
        if putting is None or not putting.is_of(part):
            put = self._put
            putting = self._current = _Putting(put, part)
        if not putting.over.wait(timeout_s):
            raise SinkBusy(
                f"{len(part)} items were put into the queue, and it has not stored them all yet; "
                "is ZooKeeper away?"
            )
        self._current = None
        outcome = putting.outcome
        rest = range(len(part), len(batch))
        return outcome if not rest else outcome._replace(again=[*outcome.again, *rest])

    def close(self, timeout_s: float) -> None:
        """Wait for a put under way. What is under way then is the queue's, until it is closed."""
        if self._current is not None:
            self._current.over.wait(timeout_s)

    def _put(self, records: Sequence[Any]) -> BatchOutcome:
        try:
            self._put_many(list(records), **self._options)
        except PutsFailed as exc:
            return self._of_some(records, exc)
        except self._refuses as exc:
            if len(records) == 1:
                return BatchOutcome({0: exc})
            return self._one_by_one(records)
        except BaseException as exc:  # noqa: BLE001 - told to the producer, which tries again
            return BatchOutcome(again=range(len(records)), error=_explained(exc))
        return ALL_CONFIRMED

    def _one_by_one(self, records: Sequence[Any]) -> BatchOutcome:
        """One of them is at fault, and the queue does not say which, nor has it stored any."""
        refused: dict[int, BaseException] = {}
        for number, record in enumerate(records):
            alone = self._put([record])
            if alone.again:
                return BatchOutcome(refused, range(number, len(records)), alone.error)
            if alone.refused:
                refused[number] = alone.refused[0]
        return BatchOutcome(refused)

    def _of_some(self, records: Sequence[Any], failed: PutsFailed) -> BatchOutcome:
        errors = {id(value): error for value, error in failed.failures}
        found = [errors.get(id(record)) or errors.get(id(_value(record))) for record in records]
        if sum(error is not None for error in found) < failed.failed:
            unknown = ConnectionLost(str(failed))  # not told of each: rather twice than never
            found = [error or unknown for error in found]
        refused: dict[int, BaseException] = {}
        again: dict[int, BaseException] = {}
        for number, error in enumerate(found):
            if error is not None:
                (refused if self._is_verdict(error) else again)[number] = error
        if not again:
            return BatchOutcome(refused)
        why = next((e for e in again.values() if not isinstance(e, ConnectionLost)), None)
        return BatchOutcome(refused, [*again], _explained(why or next(iter(again.values()))))

    def _is_verdict(self, error: BaseException) -> bool:
        """Whether what the queue says of an item is about that item: its size, or whatever the
        serializer raised for it."""
        is_serializers = isinstance(error, Exception) and not isinstance(error, LeaderqError)
        return is_serializers or isinstance(error, self._refuses)


class _Putting:
    """One batch on a thread of its own."""

    def __init__(
        self, put: Callable[[Sequence[Any]], BatchOutcome], records: Sequence[Any]
    ) -> None:
        self.over = threading.Event()
        everything = range(len(records))
        self.outcome = BatchOutcome(again=everything, error=SinkBroken("the put did not end"))
        self._put = put
        self._records = records
        Service("leaderq-queue-sink", lambda _: self._run()).start()

    def is_of(self, records: Sequence[Any]) -> bool:
        pairs = zip(records, self._records, strict=False)
        return len(records) == len(self._records) and all(a is b for a, b in pairs)

    def _run(self) -> None:
        try:
            self.outcome = self._put(self._records)
        finally:
            self.over.set()


def _value(record: Any) -> Any:
    """The value of a pair for an id queue."""
    return record[0] if isinstance(record, tuple) and record else record


def _explained(error: BaseException) -> BaseException:
    if isinstance(error, ConnectionLost):
        return error
    broken = SinkBroken(f"the queue takes nothing: {type(error).__name__}: {error}")
    broken.__cause__ = error
    return broken
