"""What becomes of the values that a blocking consumer hands to the threads that ask for them."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import Any

import pytest

from leaderq.errors import ConfigurationError, QueueClosed
from leaderq.queues import BlockingQueueConsumer
from leaderq.queues.consumers import ConsumerClosed, QueueOptions, work_in_hand
from leaderq.testing import eventually

Consumer = BlockingQueueConsumer[str]


def consumed(
    pool: ThreadPoolExecutor, consumer: Consumer, value: str, *, is_ours: bool = True
) -> Future[None]:
    """As a worker of the queue does: it waits until the work on the value has ended."""

    def work() -> None:
        work_in_hand.value.may_be_begun = lambda: is_ours
        consumer.consume(value)

    before = consumer.size()
    under_way = pool.submit(work)
    eventually(lambda: consumer.size() == before + 1)
    return under_way


def test_a_value_ends_as_the_thread_says_that_took_it():
    consumer, error = Consumer(), OSError("disk full")
    with ThreadPoolExecutor(2) as pool, closing(consumer), ThreadPoolExecutor(1) as other:
        good, bad = consumed(pool, consumer, "a"), consumed(pool, consumer, "b")
        assert other.submit(consumer.take, 60.0).result(60) == "a"
        assert consumer.take(60.0) == "b"
        consumer.task_failed(error)  # not of "a", though that was taken first
        with pytest.raises(OSError) as raised:
            bad.result(60)
        assert raised.value is error, "the queue learns of it, and decides by its retry policy"
        assert not good.done()
        other.submit(consumer.task_done).result(60)
        assert good.result(60) is None
        with pytest.raises(ValueError, match="more often than"):
            consumer.task_done()


def test_a_thread_that_took_nothing_ends_the_first_that_any_took():
    consumer = Consumer()
    with ThreadPoolExecutor(2) as pool, closing(consumer), ThreadPoolExecutor(1) as other:
        first, second = consumed(pool, consumer, "a"), consumed(pool, consumer, "b")
        assert [consumer.take(60.0), consumer.take(60.0)] == ["a", "b"]
        other.submit(consumer.task_done).result(60)
        assert first.result(60) is None
        assert not second.done()


def test_what_is_not_done_is_released_when_the_consumer_is_closed():
    consumer = Consumer()
    with ThreadPoolExecutor(2) as pool, closing(consumer):
        both = [consumed(pool, consumer, value) for value in "ab"]
        assert consumer.take(60.0) == "a"
        consumer.close()
        for one in both:
            with pytest.raises(ConsumerClosed):
                one.result(60)
        with pytest.raises(QueueClosed, match="released"):
            consumer.task_done()
        with pytest.raises(QueueClosed):
            consumer.take(0.0)
        with pytest.raises(ConsumerClosed):
            consumer.consume("c")


def test_what_may_be_anothers_by_now_is_released_and_not_handed_out():
    consumer = Consumer()
    with ThreadPoolExecutor(2) as pool, closing(consumer):
        lost = consumed(pool, consumer, "a", is_ours=False)
        ours = consumed(pool, consumer, "b")
        assert consumer.take(60.0) == "b"
        with pytest.raises(ConsumerClosed, match="another"):
            lost.result(60)
        consumer.task_done()
        assert ours.result(60) is None


@pytest.mark.parametrize("error", [None, "disk full", ValueError])
def test_what_is_no_error_neither_ends_nor_acknowledges_a_value(error: Any):
    consumer = Consumer()
    with ThreadPoolExecutor(1) as pool, closing(consumer):
        work = consumed(pool, consumer, "a")
        assert consumer.take(60.0) == "a"
        with pytest.raises(ConfigurationError, match="error="):
            consumer.task_failed(error)
        assert not work.done()
        consumer.task_done()
        assert work.result(60) is None


def test_what_cannot_be_asked_of_a_blocking_consumer_takes_nothing():
    consumer: Any = Consumer()
    with ThreadPoolExecutor(1) as pool, closing(consumer):
        work = consumed(pool, consumer, "a")
        for call in (
            lambda: consumer.take("1"),
            lambda: consumer.take(-1),
            lambda: consumer.drain_to((), 1),
            lambda: consumer.drain_to([], -1),
        ):
            with pytest.raises(ConfigurationError):
                call()
        assert consumer.items() == ["a"]
        assert consumer.take(1e300) == "a"
        consumer.task_done()
        assert work.result(60) is None
    with pytest.raises(ConfigurationError, match="make a new one"):
        QueueOptions(consumer=consumer)
