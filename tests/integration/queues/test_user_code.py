"""What users give a queue to call: refused at once if it cannot work, and its errors are its
own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from typing import Any

import pytest

from leaderq.errors import (
    ConfigurationError,
)
from leaderq.queues import (
    DistributedQueue,
    QueueConsumer,
    Retry,
)
from leaderq.testing import eventually
from leaderq.zookeeper import Session


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
    retry = Retry(attempts=9, first_s=0.01, jitter=0)
    options: Any = {option: lambda value: next(hidden)(value)}
    with DistributedQueue(session, "/q", lock_path="/locks", retry=retry, **options) as queue:
        queue.put(b"item")
        eventually(lambda: queue.depth() == 0)
    assert caplog.text.count(f"NotAPlainFunction: {option} returned") == 3


def test_a_keyword_that_a_kind_of_queue_cannot_use_is_refused(session: Session) -> None:
    with pytest.raises(ConfigurationError, match="only a priority queue"):
        DistributedQueue(session, "/q", min_items_before_refresh=3)
