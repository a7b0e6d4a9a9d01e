"""Every private part of kafka-python 3.0 that leaderq relies on, and why; no other file touches
one.

What is read, set, called or patched stands below as a function each. What is overridden elsewhere,
and the functions of kafka-python whose inner working we count on, are listed in
``tests/unit/kafka/test_kafka_private_api.py``, which fails if the source of one changed: read it,
then its users here, then note the new hash.

Two of these would fail open if they went without effect, and a zombie could fence its successor:
the gate in the assignor (``metadata``), and :func:`mended`. So any other version is refused before
a career starts, and before a producer that fences is made
(:func:`require_the_version_that_was_read`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from typing import Any

import kafka
from kafka import errors as native
from kafka.record.default_records import DefaultRecordBatch  # type: ignore[import-untyped]

from leaderq.base import clock
from leaderq.errors import MissingPiece
from leaderq.threads import primitives

_WAKE_S = 0.5
_PAUSE_S = 0.02
VERSION = "3.0.12"


def require_the_version_that_was_read() -> None:
    """Raise ``MissingPiece`` unless kafka-python is of :data:`VERSION`: with another, a zombie
    could fence its successor.
    """
    if kafka.__version__ != VERSION:
        raise MissingPiece(
            f"kafka-python {kafka.__version__} is not what leaderq was written for: pip install"
            f" 'kafka-python=={VERSION}', or use client='confluent'"
        )


# ---- a consumer ----------------------------------------------------------------------------------


def cluster_of(client: Any) -> Any:
    """Return what a consumer or producer knows of topics now. The public methods ask the broker for
    what they do not know, some without a bound. And to know all topics, the public way is a
    pattern; with one, a consumer subscribes to what matches, and joins by itself.
    """
    return client._cluster if hasattr(client, "_cluster") else client._metadata


def coordinator_of(consumer: Any) -> Any:
    """Return the object that carries out the group's protocol. It attends without reading, tells
    whether a join is under way (``rejoining``) or needed, asks for a join (a static member that
    took over would not notice new partitions), and fetches all committed offsets in one request,
    with metadata.
    """
    return consumer._coordinator


def partition_states(consumer: Any) -> Mapping[Any, Any]:
    """Return the state of each assigned partition. The public ``position`` takes 2 s for 1,000
    partitions; ``seek`` takes some 10 s for 10,000, because it copies the whole assignment each
    time.
    """
    states: Mapping[Any, Any] = consumer._subscription.assignment
    return states


def run_bounded(
    selector: Any, run: Callable[..., Any], coro: Any, args: Sequence[Any], limit_s: float
) -> Any:
    """Return the result of ``run(coro, *args)``, or raise ``KafkaTimeoutError`` after ``limit_s``
    seconds. kafka-python itself would wait for ever, for committed offsets for instance.
    """
    thread = selector._io_thread
    if thread is None or thread is primitives.current_thread() or selector._closed:
        return run(coro, *args)
    answer = selector.call_soon_with_future(coro, *args)
    done = primitives.Event()
    answer.add_both(lambda _: done.set())
    ends_s = clock.awake_s() + limit_s
    while not done.wait(_WAKE_S):
        if not thread.is_alive():
            raise native.KafkaConnectionError("the client's I/O thread has ended")
        if clock.awake_s() >= ends_s:
            what = f"the client's I/O thread did not answer within {limit_s:g} s"
            raise native.KafkaTimeoutError(what)
        selector.wakeup()
    if answer.exception is not None:
        raise answer.exception
    return answer.value


def leader_epochs(consumer: Any, partitions: Iterable[Any]) -> dict[Any, int]:
    """Return the newest epoch of the leader of each partition that the client has heard of; -1 if
    it has heard of none. Positions are compared with these, and with nothing before that.
    """
    heard_of = consumer._fetcher._manager.cluster.leader_epoch_for_partition
    return {each: -1 if (epoch := heard_of(each)) is None else epoch for each in partitions}


def is_validating(consumer: Any, partitions: Iterable[Any]) -> bool:
    """Whether the broker has not confirmed yet that the log still has the positions."""
    states, task = partition_states(consumer), consumer._fetcher._validation_task
    is_asking = task is not None and not task.is_done  # it finds an error after the positions
    return is_asking or any(states[each].awaiting_validation for each in partitions)


def start_commit(consumer: Any, offsets: Mapping[Any, Any], timeout_ms: float) -> Any:
    """Begin a commit; returns its future. It is what the public ``commit`` waits for; the public
    ``commit_async`` would not repeat a request.
    """
    coordinator = consumer._coordinator
    commit = coordinator._commit_offsets_sync_async
    return coordinator._manager.call_soon(commit, offsets, timeout_ms)


def set_fetch_wait(consumer: Any, wait_ms: int) -> None:
    """Set how long a broker may hold a fetch that finds nothing; the next fetch will ask for it."""
    consumer._fetcher.config["fetch_max_wait_ms"] = wait_ms


def resume_all(consumer: Any) -> None:
    """Resume all paused partitions. Records fetched for them are lost: set positions next (B22)."""
    consumer.resume(*consumer.paused())
    consumer._fetcher._paused_partition_records.clear()


def seen_as(kind: type[tuple[Any, ...]], rows: Sequence[Any]) -> Sequence[Any]:
    """Return the same tuples, their class changed to ``kind``, which has the same fields: 50 ns
    each, where a copy costs 1 us.
    """
    for row in rows:
        row.__class__ = kind
    return rows


class _Name(bytearray):
    def decode(self, *_: Any) -> str:
        return super().decode("utf-8", "backslashreplace")


class _AnyNames(bytearray):
    """The bytes of records; what a slice of them decodes to is a text, whatever it holds."""

    def __getitem__(self, at: Any) -> Any:
        found = super().__getitem__(at)
        return _Name(found) if isinstance(at, slice) else found


_read_strictly = DefaultRecordBatch._read_msg


@wraps(_read_strictly)
def _read_any_names(batch: Any) -> Any:
    try:
        return _read_strictly(batch)
    except UnicodeDecodeError:
        batch._buffer = _AnyNames(batch._buffer)
        return _read_strictly(batch)


def can_be_read(consumer: Any, error: BaseException) -> bool:
    """Whether ``error``, which ``poll`` has raised, will not come again: it was about a header
    whose name is not UTF-8 (B42). From now on such names are read with escapes, which costs some
    time for each record; so not before. What was fetched of that partition is fetched again.
    """
    if not isinstance(error.__context__, UnicodeDecodeError):
        return False
    DefaultRecordBatch._read_msg = _read_any_names
    consumer._fetcher._next_partition_records = None
    return True


# ---- a producer ----------------------------------------------------------------------------------


def started(producer: Any, step: str, *args: Any) -> Any:
    """Begin a ``step`` of a transaction; returns the result to wait for. The public methods begin
    it and wait without a bound.
    """
    result = getattr(producer._transaction_manager, step)(*args)
    producer._sender.wakeup()
    return result


def transaction_error(producer: Any) -> Any:
    """Return the error that put the transaction into its state, if any. What later calls raise says
    only that there was one.
    """
    return producer._transaction_manager.last_error


def forget_refused_offsets(producer: Any) -> None:
    """Drop the offsets of a transaction that was aborted: the next one would commit them (B26)."""
    producer._transaction_manager._pending_txn_offset_commits.clear()


def has_unacknowledged(producer: Any) -> bool:
    return bool(producer._accumulator.has_incomplete)


def metadata_came_after(producer: Any, at_s: float) -> bool:
    """Whether metadata came from a broker after ``at_s``. If it did, a topic that the client does
    not know does not exist.
    """
    return bool(producer._metadata._last_successful_refresh_ms > at_s * 1000)


def appender(producer: Any) -> tuple[Callable[..., Any], Callable[[], None]]:
    """Return two functions: append a message, and wake the sender. They do what ``send`` does after
    its checks, at half the cost.
    """
    return producer._accumulator.append, producer._sender.wakeup


def drop(producer: Any, wait_s: float) -> None:
    """Close the producer, and do not send buffered messages. The public ``close`` waits until they
    are sent, and raises if that takes too long.
    """
    # fails what is buffered, and closes the connections, when it ends
    producer._sender.force_close()
    producer._unregister_cleanup()
    producer._sender.join(wait_s)
    producer._closed = True


def mended(producer: Any) -> Any:
    """Return the same producer with two faults mended; call this before its first request. It then
    ends when its epoch is refused (B13), and its ``await_ready`` returns ``False`` when a broker
    cannot be reached (B14).
    """
    net = producer._sender._client
    is_ready = net.await_ready

    def await_ready(node_id: Any, timeout_ms: float) -> bool:
        try:
            return bool(is_ready(node_id, timeout_ms=timeout_ms))
        except native.KafkaConnectionError:
            clock.sleep(_PAUSE_S)  # on the sender's own thread, which would ask again at once
            return False

    net.await_ready = await_ready
    producer._transaction_manager._supports_epoch_bump = lambda: False
    return producer
