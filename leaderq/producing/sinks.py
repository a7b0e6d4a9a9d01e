"""Where a buffered producer sends to: the narrow :class:`Sink`, and the sinks that need no server
library."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from operator import index, is_
from typing import Any, NamedTuple, Protocol

from leaderq.base.arguments import (
    NotAPlainFunction,
    plain_function,
    require,
    require_finished,
    wanted,
)
from leaderq.errors import (
    ConfigurationError,
    ConnectionLost,
    LeaderqError,
    PutsFailed,
    SinkBroken,
    SinkBusy,
    TooLarge,
    told,
    with_cause,
)
from leaderq.threads import Service, primitives
from leaderq.threads.waker import bounded_s


class BatchOutcome(NamedTuple):
    """What became of the records of one batch, by their positions in the batch. Positions that are
    not named are confirmed.

    ``refused``: the sink will never take this record, though it takes others. ``again``: these
    records are not confirmed, and must be given again, in order (except refused ones); ``error``
    says why. If a record must be given again, so must all later records whose order to it matters.
    With ``SinkBusy`` as the error, the sink keeps those records, and recognises them when they come
    again. ``place_of`` returns where the sink has stored the record at a confirmed position; the
    request's future returns this. It is called only if somebody waits.
    """

    refused: Mapping[int, BaseException] = {}
    again: Sequence[int] = ()
    error: BaseException | None = None
    place_of: Callable[[int], object] | None = None


ALL_CONFIRMED = BatchOutcome()


class SinkBatch(list[Any]):
    """The records of a batch. ``waited``: the positions of records for whose place a
    future waits.
    """

    waited: Collection[int] = ()


def checked(outcome: object, count: int) -> BatchOutcome:
    """Return ``outcome`` if it can be that of a batch of ``count`` records.

    :raises SinkBroken: the outcome cannot be right; this is an error in the sink, and nothing in
        the outcome can be believed.
    """
    if outcome is ALL_CONFIRMED:  # the usual one costs nothing
        return ALL_CONFIRMED
    found: Any = outcome
    position = range(count).index
    try:
        refused = {position(index(at)): error for at, error in found.refused.items()}
        again = [at for at in map(position, map(index, found.again)) if at not in refused]
        errors = [*refused.values(), *(() if found.error is None else (found.error,))]
        if odd := [error for error in errors if not isinstance(error, BaseException)]:
            text = f"{odd[0]!r} is a {type(odd[0]).__name__}, not an exception"
            raise TypeError(text)  # noqa: TRY301
        return BatchOutcome(refused, again, found.error, found.place_of)
    except Exception as exc:
        raise SinkBroken(
            f"an error in the sink: it answered to a batch of {count} with what cannot be its "
            f"BatchOutcome (for all confirmed: ALL_CONFIRMED), and is given all of it again: {exc}"
        ) from exc


class Sink(Protocol):
    """A place that takes batches. Called from one thread of the producer, never twice at a time.

    *Confirmed* is what the sink itself has acknowledged, nothing less.
    """

    def send(self, batch: Sequence[Any], timeout_s: float) -> BatchOutcome:
        """Send all records of ``batch``, in order, and wait up to about ``timeout_s`` seconds for
        the acknowledgements.

        An empty batch is never given. The first call connects.

        :raises SinkAway: no record of the batch is confirmed; the batch will be given again,
            without the records that have expired meanwhile.
        :raises SinkBusy: the sink keeps the batch and goes on with it; the same one will be given
            again.
        :raises SinkBroken: as ``SinkAway``, but trying again soon will not help.

        Any other exception counts as ``SinkBroken``: nothing is given up for an error that the sink
        does not know. An outcome that cannot be that of the batch also counts as ``SinkBroken``.
        """

    def close(self, timeout_s: float) -> None:
        """Close everything, within about ``timeout_s`` seconds. Never raises. Records that are not
        confirmed by then are not sent later.
        """


HandOver = Callable[[Sequence[Any], float], Callable[[], BatchOutcome]]


class SinkAhead(Sink, Protocol):
    """A sink that takes the next batch while the last is under way, so that it never waits for the
    producer."""

    def hand_over(self, batch: Sequence[Any], timeout_s: float) -> Callable[[], BatchOutcome]:
        """Begin to send as :meth:`send` does, and return what waits for the outcome: called on the
        same thread, in the order of the batches. At most one batch is handed over before the last
        is heard of, and none after a call that raised. If anything of the first is then to be given
        again, all of the later one that may not overtake must be *again* too. If the first raised
        what the sink does not know, the later one is not asked for: both are given again, in order.
        If anything of the first is refused, the later one is heard of before another is given: a
        sink may have lost what it was handed behind a record that it refused.
        """


def require_sink(sink: object) -> None:
    """Check that ``sink`` has the methods that the producer calls.

    :raises ConfigurationError: a method is missing; the error says what to give instead.
    """
    if inspect.isclass(sink):
        raise ConfigurationError(f"sink={sink!r} is a class; give an instance of it")
    if not hasattr(sink, "send") or not hasattr(sink, "close"):
        remedy = "; a callable becomes a sink as CallableSink(...)" if callable(sink) else ""
        raise ConfigurationError(f"sink={sink!r} has no send and close{remedy}")
    require(
        plain_function("the sink's send", sink.send),
        plain_function("the sink's close", sink.close),
        plain_function("the sink's hand_over", getattr(sink, "hand_over", None), or_none=True),
    )


class CallableSink:
    """Passes batches to ``call``; when ``call`` returns, the batch is acknowledged. It is called
    with a list of records or, with ``each=True``, with one record at a time. ``call`` must limit
    its own time; ``close`` is called once, if given.

    ``refuses``: the errors that mean that a record will never be taken. The batch is then halved,
    again and again, until that record is alone, and only it is refused; so records of a batch that
    raised may be sent more than once. Every other error is the sink's, not a record's: no record is
    dropped for it, and unconfirmed ones are sent again, in order.

    :raises ConfigurationError: ``call`` or ``close`` is not a plain function, or ``refuses`` has
        something that is not a class of exceptions.
    """

    def __init__(
        self,
        call: Callable[[Any], object],
        *,
        each: bool = False,
        refuses: tuple[type[Exception], ...] = (),
        close: Callable[[], object] | None = None,
    ) -> None:
        require(
            plain_function("call", call),
            plain_function("close", close, or_none=True),
        )
        self._call = call
        self._each = each
        self._refuses = checked_refuses(refuses)
        self._close = close

    def send(self, batch: Sequence[Any], timeout_s: float) -> BatchOutcome:
        refused: dict[int, BaseException] = {}
        done, count = 0, len(batch)
        # The ends of the parts that are still to be sent, the last first; each begins at `done`.
        ends = [*range(count, 0, -1)] if self._each else [count]
        while ends:
            try:
                self._called(batch[done] if self._each else list(batch[done : ends[-1]]))
            except self._refuses as exc:
                if ends[-1] - done > 1:
                    ends.append((done + ends[-1]) // 2)
                    continue
                refused[done] = exc
            except Exception as exc:  # noqa: BLE001 - the user's callable: told, and tried again
                return BatchOutcome(refused, range(done, count), exc)
            done = ends.pop()
        return BatchOutcome(refused) if refused else ALL_CONFIRMED

    def _called(self, what: Any) -> None:
        returned = self._call(what)
        try:
            require_finished(returned, "call")
        except NotAPlainFunction as exc:
            raise SinkBroken(f"nothing was stored: {exc}") from None

    def close(self, timeout_s: float) -> None:
        if self._close is not None:
            self._close()


def checked_refuses(refuses: Any) -> tuple[type[Exception], ...]:
    """Return ``refuses``, if it is a tuple of classes of exceptions.

    :raises ConfigurationError: ``refuses`` is not such a tuple.
    """
    are_errors = isinstance(refuses, tuple) and all(
        inspect.isclass(one) and issubclass(one, Exception) for one in refuses
    )
    require(wanted("refuses", refuses, are_errors, "a tuple of classes of exceptions"))
    return tuple(refuses)


MAX_ITEMS = 100
"""Items of one call: a queue remembers that many failures, so each item can be told apart."""


class PutsMany(Protocol):
    """The methods that this sink needs of a queue."""

    def put_many(self, items: Any, **options: Any) -> int | None:
        """Put each item, in order, and return when all are stored."""


class QueueSink:
    """Puts records into a started queue: any recipe of :mod:`leaderq.queues` that was not made with
    ``put_in_background``. The queue stays the caller's, who closes it after the producer.

    ``options`` go to each ``put_many`` (``priority=3``). Records are what ``put_many`` takes:
    values, or for an id queue pairs of value and id. ``put_many`` may be another callable, such as
    ``SimpleDistributedQueue.offer_many``. ``refuses``: errors that ``put_many`` raises for a record
    that it will never take.

    The queue is authoritative. A put waits while the servers are unreachable, and is stored once,
    in its place, when they are back. So a batch is put on a thread of the sink's own; while that
    lasts the producer is told *busy*, and asks again about the same batch. On each failure:

    * **the servers are unreachable**: busy; nothing is put twice;
    * **an item is too large, its serializer raised, or an error is named in** ``refuses``: that
      record is refused, with the error; the others are stored;
    * **the outcome is unknown** (``ConnectionLost``): the record is put again, and may be there
      twice; so may what a killed process had put and not confirmed;
    * **any other error** (access refused, the session or the queue closed, one that nobody knows):
      the queue's, not a record's. The sink is broken; all is put again, and nothing is given up.

    *Guarantees:* confirmed means stored. Order is kept.

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
        require(plain_function("put_many", put_many))
        self._put_many = put_many
        self._refuses: tuple[type[Exception], ...] = (TooLarge, *checked_refuses(refuses))
        self._options = options
        self._records: Sequence[Any] = ()
        self._putting: primitives.Future[BatchOutcome] | None = None
        """The put under way, of ``_records``, on a thread of its own."""

    def send(self, batch: Sequence[Any], timeout_s: float) -> BatchOutcome:
        part = batch[:MAX_ITEMS]
        is_same = len(part) == len(self._records) and all(map(is_, part, self._records))
        if self._putting is None or not is_same:
            putting = primitives.Future[BatchOutcome]()
            put = partial(self._put_and_tell, part, putting)
            Service("leaderq-queue-sink", lambda _: put()).start()
            self._records, self._putting = part, putting
        try:
            outcome = self._putting.result(bounded_s(timeout_s))
        except primitives.FutureTimeout:
            raise SinkBusy(
                f"{len(part)} items were put into the queue, and it has not stored them all yet; "
                "is ZooKeeper unreachable?"
            ) from None
        self._putting = None
        rest = range(len(part), len(batch))
        return outcome if not rest else outcome._replace(again=[*outcome.again, *rest])

    def close(self, timeout_s: float) -> None:
        """Wait at most ``timeout_s`` seconds for a put under way. After that the put goes on until
        the queue is closed.
        """
        if self._putting is not None:
            primitives.wait_futures([self._putting], timeout_s)

    def _put_and_tell(self, records: Sequence[Any], told: primitives.Future[BatchOutcome]) -> None:
        error = SinkBroken("the put did not end")
        outcome = BatchOutcome(again=range(len(records)), error=error)
        try:
            outcome = self._put(records)
        finally:
            told.set_result(outcome)

    def _put(self, records: Sequence[Any]) -> BatchOutcome:
        try:
            require_finished(self._put_many(list(records), **self._options), "put_many")
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
        """Put the records one by one: one of them is at fault, and the queue does not say which. It
        has stored none so far.
        """
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
        """Whether the error is about the item itself: its size, its serializer, or an error that
        ``refuses`` names.
        """
        is_serializers = isinstance(error, Exception) and not isinstance(error, LeaderqError)
        return is_serializers or isinstance(error, self._refuses)


def _value(record: Any) -> Any:
    return record[0] if isinstance(record, tuple) and record else record


def _explained(error: BaseException) -> BaseException:
    if isinstance(error, ConnectionLost):
        return error
    return with_cause(SinkBroken(f"the queue takes nothing: {told(error)}"), error)
