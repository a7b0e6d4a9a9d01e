"""A ZooKeeper queue as a sink, known only by its ``put_many``.

The queue is authoritative. A put goes on waiting while the servers are away, and is stored once, in
its place, when they are back. So a batch is put on a thread of the sink's own; while that lasts the
producer is told *busy*, and asks again about the same batch. On each failure:

* **the servers are away**: busy; nothing is put twice;
* **an item is too large, or the serializer raises**: that record is refused, with the error; the
  others are stored;
* **the outcome is unknown** (``ConnectionLost`` from the queue): the record is put again, and may
  be there twice;
* **any other error** for several items: they are put one by one, and it refuses those that raise it
  again;
* **the queue was closed**: the sink is broken, and stays so;
* **the process is killed**: what was put and not confirmed is put again from the journal, and may
  be there twice.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from leaderq.errors import ConnectionLost, PutsFailed, QueueClosed, SinkBroken, SinkBusy
from leaderq.producing.sinks.sink import ALL_CONFIRMED, BatchOutcome

MAX_ITEMS = 100
"""Items of one call: a queue remembers so many failures with the item, so each can be told apart.
"""


_OF_THE_QUEUE = (PutsFailed, ConnectionLost, QueueClosed)


class PutsMany(Protocol):
    """What is asked of a queue."""

    def put_many(self, items: Any, **options: Any) -> int | None:
        """Put each item, in order, and return when all are stored."""


class QueueSink:
    """Puts records into a started queue: any recipe of :mod:`leaderq.queues` that was not made with
    ``put_in_background``.

    ``options`` go to each ``put_many`` (``priority=3``). Records are what ``put_many`` takes:
    values, or for an id queue pairs of value and id. ``put_many`` may be another callable, such as
    ``SimpleDistributedQueue.offer_many``. The queue stays the caller's, who closes it after the
    producer.

    *Guarantees:* confirmed means stored. Order is kept.
    *Not guaranteed:* that nothing is there twice, after an unknown outcome or a crash.
    """

    def __init__(
        self,
        queue: PutsMany | None = None,
        *,
        put_many: Callable[..., object] | None = None,
        **options: Any,
    ) -> None:
        if put_many is None:
            if queue is None:
                raise TypeError("QueueSink needs a queue, or put_many")
            put_many = queue.put_many
        self._put_many = put_many
        self._options = options
        self._current: _Putting | None = None

    def send(self, batch: Sequence[Any], timeout_s: float) -> BatchOutcome:
        """See :class:`~leaderq.producing.sinks.sink.Sink`."""
        part = batch[:MAX_ITEMS]
        putting = self._current
        if putting is None or not putting.is_of(part):
            putting = self._current = _Putting(self._put_many, part, self._options)
        if not putting.over.wait(timeout_s):
            raise SinkBusy(
                f"{len(part)} items were put into the queue, and it has not stored them all yet; is ZooKeeper away?"
            )
        self._current = None
        outcome = putting.outcome()
        rest = range(len(part), len(batch))
        return outcome if not rest else outcome._replace(again=[*outcome.again, *rest])

    def close(self, timeout_s: float) -> None:
        """Wait for a put under way. What is still under way then is the queue's, until it is
        closed."""
        if self._current is not None:
            self._current.over.wait(timeout_s)


class _Putting:
    """One ``put_many`` on a thread of its own."""

    def __init__(
        self, put_many: Callable[..., object], records: Sequence[Any], options: dict[str, Any]
    ) -> None:
        self.over = threading.Event()
        self._records = records
        self._error: BaseException | None = None
        self._alone: list[BaseException | None] = []
        self._thread = threading.Thread(
            target=self._run, args=(put_many, options), name="leaderq-queue-sink", daemon=True
        )
        self._thread.start()

    def is_of(self, records: Sequence[Any]) -> bool:
        """Whether it puts these very records."""
        return len(records) == len(self._records) and all(
            a is b for a, b in zip(records, self._records, strict=True)
        )

    def _run(self, put_many: Callable[..., object], options: dict[str, Any]) -> None:
        error = _error_of(put_many, self._records, options)
        if error is not None and not isinstance(error, _OF_THE_QUEUE) and len(self._records) > 1:
            # One of them is at fault, and the queue does not say which, nor has it stored any.
            self._alone = [_error_of(put_many, [record], options) for record in self._records]
        self._error = error
        self.over.set()

    def outcome(self) -> BatchOutcome:
        """What became of each record."""
        error = self._error
        if error is None:
            return ALL_CONFIRMED
        if self._alone:
            return _told_apart(self._alone)
        if isinstance(error, PutsFailed):
            return self._of_some(error)
        return _told_apart([error] * len(self._records))

    def _of_some(self, failed: PutsFailed) -> BatchOutcome:
        errors = {id(value): error for value, error in failed.failures}
        found = [
            errors.get(id(record)) or errors.get(id(_value(record))) for record in self._records
        ]
        if (
            sum(error is not None for error in found) < failed.failed
        ):  # not told of each: rather twice than never
            found = [error or ConnectionLost(str(failed)) for error in found]
        return _told_apart(found)


def _error_of(
    put_many: Callable[..., object], records: Sequence[Any], options: dict[str, Any]
) -> BaseException | None:
    try:
        put_many(list(records), **options)
    except BaseException as exc:  # noqa: BLE001 - told to who waits
        return exc
    return None


def _value(record: Any) -> Any:
    """The value of a pair for an id queue."""
    return record[0] if isinstance(record, tuple) and record else record


def _told_apart(errors: Sequence[BaseException | None]) -> BatchOutcome:
    refused: dict[int, BaseException] = {}
    again: list[int] = []
    why: BaseException | None = None
    for number, error in enumerate(errors):
        if isinstance(error, ConnectionLost | QueueClosed):
            again.append(number)
            why = error
        elif error is not None:
            refused[number] = error
    if isinstance(why, QueueClosed):
        broken = SinkBroken(f"the queue takes nothing: {why}")
        broken.__cause__ = why
        why = broken
    return BatchOutcome(refused, again, why)
