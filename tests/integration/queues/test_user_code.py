"""What users give a queue to call: refused at once if it cannot work, and its errors are its
own.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import Future
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
    DistributedQueue,
    QueueConsumer,
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


def test_a_keyword_that_a_kind_of_queue_cannot_use_is_refused(session: Session) -> None:
    with pytest.raises(ConfigurationError, match="only a priority queue"):
        DistributedQueue(session, "/q", min_items_before_refresh=3)
