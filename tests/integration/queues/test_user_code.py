"""What users give a queue to call: refused at once if it cannot work, and its errors are its
own.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from typing import Any

import pytest
from mute import TOLD, Mute

from leaderq.errors import (
    ClaimLost,
    ConfigurationError,
    ConnectionLost,
    LeaderqError,
    QueueClosed,
)
from leaderq.queues import (
    BYTES,
    DistributedQueue,
    ErrorMode,
    QueueBuilder,
    QueueConsumer,
    QueueSerializer,
    RetryPolicy,
)
from leaderq.testing import eventually
from leaderq.zookeeper import Session

LOCKS = pytest.mark.parametrize("lock_path", [None, "/locks"])


async def asynchronous(_value: bytes) -> None: ...


async def asynchronous_generator(_value: bytes) -> AsyncIterator[None]:
    yield


def generator(_value: bytes) -> Iterator[None]:
    yield


class Asynchronous(QueueConsumer[bytes]):
    async def consume(self, value: bytes) -> None: ...


@pytest.mark.parametrize(
    "bad", [asynchronous, asynchronous_generator, generator, Asynchronous(), 3]
)
def test_a_consumer_whose_work_a_call_would_not_do_is_refused(session: Session, bad: Any) -> None:
    with pytest.raises(ConfigurationError, match="consumer is"):
        DistributedQueue(session, "/q", consumer=bad)
    with pytest.raises(ConfigurationError, match="consume_batch is"):
        DistributedQueue(session, "/q", consume_batch=bad)


@pytest.mark.parametrize("option", ["consumer", "consume_batch"])
def test_an_item_whose_work_nobody_does_or_waits_for_is_not_acknowledged(
    session: Session, option: str, caplog: pytest.LogCaptureFixture
) -> None:
    hidden = iter([asynchronous, generator, lambda _value: Future[None](), lambda _value: None])
    retry = RetryPolicy(attempts=9, backoff_s=0.01, jitter=0)
    options: Any = {option: lambda value: next(hidden)(value)}
    with DistributedQueue(session, "/q", lock_path="/locks", retry=retry, **options) as queue:
        queue.put(b"item")
        eventually(lambda: queue.depth() == 0)
    assert caplog.text.count(f"NotAPlainFunction: {option} returned") == 3


def test_a_process_pool_is_refused_and_a_thread_pool_says_how_many_work_at_a_time(
    session: Session,
) -> None:
    with (
        ProcessPoolExecutor(1) as processes,
        pytest.raises(ConfigurationError, match="ProcessPoolExecutor"),
    ):
        DistributedQueue(session, "/q", consumer=print, executor=processes)
    together = threading.Barrier(4)
    with ThreadPoolExecutor(4) as pool:
        builder = QueueBuilder.builder(session, lambda _value: together.wait(60), BYTES, "/q")
        builder.executor(pool)
        with builder.build_queue() as queue:
            queue.put_many([b"item"] * 4)
            eventually(
                lambda: queue.depth() == 0 and not together.broken and together.n_waiting == 0
            )


OURS = pytest.mark.parametrize("kind", [QueueClosed, ConnectionLost, ClaimLost, ConfigurationError])


def assert_told(caplog: pytest.LogCaptureFixture, times: int) -> None:
    """So many failures are in the log, each with its queue and item."""
    failures = [
        record.getMessage() for record in caplog.records if "item failed" in record.getMessage()
    ]
    assert len(failures) == times
    assert all("queue=/q item=queue-" in failure for failure in failures)


@LOCKS
@OURS
@pytest.mark.parametrize("is_batch", [False, True])
def test_an_error_of_ours_that_escapes_a_consumer_is_a_failure_like_any_other(
    session: Session,
    lock_path: str | None,
    kind: type[LeaderqError],
    is_batch: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[Any] = []

    def forward(value: bytes | Sequence[bytes]) -> None:
        calls.append(value)
        raise kind("of the queue it forwards to")

    consumer: dict[str, Any] = {"consume_batch" if is_batch else "consumer": forward}
    retry = RetryPolicy(attempts=3, backoff_s=0.01)
    with (
        caplog.at_level(logging.WARNING, "leaderq"),
        DistributedQueue(session, "/q", lock_path=lock_path, retry=retry, **consumer) as queue,
    ):
        queue.put(b"item")
        eventually(lambda: queue.dead_letters.count() == 1)
        assert len(calls) == 3
    assert_told(caplog, 3)


@LOCKS
@OURS
def test_an_error_of_ours_in_the_block_of_an_item_is_a_failure_like_any_other(
    session: Session,
    lock_path: str | None,
    kind: type[LeaderqError],
    caplog: pytest.LogCaptureFixture,
) -> None:
    retry = RetryPolicy(attempts=2, backoff_s=0.0)
    with (
        caplog.at_level(logging.WARNING, "leaderq"),
        DistributedQueue(session, "/q", lock_path=lock_path, retry=retry) as queue,
    ):
        queue.put(b"item")
        for attempt in (1, 2):
            with pytest.raises(kind), queue.take(60) as item:
                assert item.attempt == attempt
                raise kind("of the queue it forwards to")
        eventually(lambda: queue.dead_letters.count() == 1)
    assert_told(caplog, 2)


class Rude(BaseException):
    """Of a user's, and no ``Exception``."""


@LOCKS
@pytest.mark.parametrize("attempts", [1, 2])
def test_an_item_whose_error_cannot_be_told_is_set_aside_and_the_others_go_on(
    session: Session, lock_path: str | None, attempts: int
) -> None:
    seen: list[bytes] = []

    def consume(value: bytes) -> None:
        seen.append(value)
        if value == b"bad":
            raise Mute

    retry = RetryPolicy(attempts=attempts, backoff_s=0.01)
    with DistributedQueue(
        session, "/q", consumer=consume, lock_path=lock_path, retry=retry
    ) as queue:
        queue.put(b"bad")
        eventually(lambda: queue.dead_letters.count() == 1)
        queue.put(b"good")
        eventually(lambda: queue.depth() == 0 and seen == [b"bad"] * attempts + [b"good"])
        (letter,) = queue.dead_letters.browse()
        assert letter.note.error == TOLD


@LOCKS
@pytest.mark.parametrize("error", [Mute(), Rude("no"), SystemExit(3)], ids=["mute", "rude", "exit"])
def test_a_serializer_may_raise_what_it_likes_and_costs_one_item(
    session: Session, lock_path: str | None, error: BaseException
) -> None:
    class Spoilt(QueueSerializer[bytes]):
        def serialize(self, value: bytes) -> bytes:
            return value

        def deserialize(self, data: bytes) -> bytes:
            if data == b"bad":
                raise error
            return data

    seen: list[bytes] = []
    with DistributedQueue(
        session, "/q", serializer=Spoilt(), consumer=seen.append, lock_path=lock_path
    ) as queue:
        queue.put(b"bad")
        eventually(lambda: queue.dead_letters.count() == 1)
        queue.put(b"good")
        eventually(lambda: seen == [b"good"] and queue.depth() == 0)


@LOCKS
def test_a_batch_is_counted_in_values_and_what_is_done_of_a_large_znode_is_not_repeated(
    session: Session, lock_path: str | None
) -> None:
    batches: list[list[bytes]] = []
    is_bad = True

    def consume(values: Sequence[bytes]) -> None:
        nonlocal is_bad
        batches.append(list(values))
        if b"25" in values and is_bad:
            is_bad = False
            raise ValueError("not now")

    with DistributedQueue(session, "/q") as producer:
        producer.put_multi([b"%d" % number for number in range(50)])
        producer.put_many([b"%d" % number for number in range(50, 60)])
    retry = RetryPolicy(backoff_s=0.0)
    with DistributedQueue(
        session, "/q", consume_batch=consume, batch_items=10, lock_path=lock_path, retry=retry
    ) as queue:
        eventually(lambda: queue.depth() == 0 and sum(map(len, batches)) == 70)
    assert all(len(batch) <= 10 for batch in batches)
    twice = [value for batch in batches for value in batch]
    assert sorted(set(twice), key=int) == [b"%d" % number for number in range(60)]
    assert sorted({value for value in twice if twice.count(value) > 1}, key=int) == [
        b"%d" % n for n in range(20, 30)
    ]


def test_the_error_mode_may_be_changed_while_the_queue_consumes(session: Session) -> None:
    calls: list[bytes] = []

    def fail(value: bytes) -> None:
        calls.append(value)
        raise ValueError("never")

    with DistributedQueue(
        session, "/q", consumer=fail, retry=RetryPolicy(backoff_s=0.01, max_backoff_s=0.01)
    ) as queue:
        queue.set_error_mode(ErrorMode.DELETE)
        queue.put(b"item")
        eventually(lambda: queue.depth() == 0 and calls == [b"item"])
        assert queue.dead_letters.count() == 0


def test_a_keyword_that_a_kind_of_queue_cannot_use_is_refused(session: Session) -> None:
    with pytest.raises(ConfigurationError, match="only a priority queue"):
        DistributedQueue(session, "/q", min_items_before_refresh=3)
