"""Many producers at once: the order of each, at most once, nothing lost, nobody starved."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import CancelledError
from typing import Any

import pytest
from held import WAIT_S, Told

from leaderq.errors import DeadlineExceeded, QueueClosed, QueueFull
from leaderq.singular import RequestFuture, SingularUpdateQueue

EACH = 1500


@pytest.fixture(autouse=True)
def _threads_switch_often() -> Iterator[None]:
    """Fifty times as often as usual, so that threads meet where they seldom do."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    yield
    sys.setswitchinterval(before)


def run(producers: int, work: Any) -> None:
    errors: list[BaseException] = []
    barrier = threading.Barrier(producers)

    def produce(number: int) -> None:
        try:
            barrier.wait(WAIT_S)
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [
        threading.Thread(target=produce, args=(number,), daemon=True) for number in range(producers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert not any(thread.is_alive() for thread in threads)
    assert errors == []


@pytest.mark.parametrize("producers", [4, 16])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"capacity": 1},
        {
            "capacity": 7,
        },
        {"capacity": 100},
        {"max_batch": 10},
        {"capacity": 5, "max_batch": 3},
    ],
    ids=str,
)
def test_each_producers_requests_are_applied_once_and_in_its_order(
    producers: int, options: dict[str, int]
) -> None:
    applied: list[tuple[int, int]] = []
    deepest = 0

    def apply(request: Any) -> Any:
        nonlocal deepest
        deepest = max(deepest, queue.depth)
        (applied.extend if "max_batch" in options else applied.append)(request)
        return request

    queue = SingularUpdateQueue(apply, **options)  # type: ignore[call-overload]

    def produce(producer: int) -> None:
        for number in range(EACH if len(options) < 2 else EACH // 5):
            if number % 10:
                queue.post((producer, number))
            else:
                assert queue.submit((producer, number)).result(WAIT_S) == (producer, number)

    run(producers, produce)
    assert queue.close()
    each = EACH if len(options) < 2 else EACH // 5
    for producer in range(producers):
        assert [number for one, number in applied if one == producer] == list(range(each))
    assert len(applied) == producers * each == queue.stats().applied
    if "capacity" in options:
        assert deepest <= options["capacity"]


def _outcome(ticket: RequestFuture[Any]) -> str:
    try:
        ticket.result(WAIT_S)
    except CancelledError:
        return "cancelled"
    except DeadlineExceeded:
        return "expired"
    except ValueError:
        return "failed"
    return "done"


def _live(queue: SingularUpdateQueue[Any, Any], producer: int, dice: random.Random) -> Counter[str]:
    """Posts, submits, cancels, deadlines; what became of each, as far as the producer can tell."""
    tickets, mine = [], Counter[str]()
    for number in range(EACH // 3):
        request, kind = (producer, number), dice.random()
        try:
            if kind < 0.5:
                queue.post(request)
                mine["posted"] += 1
                continue
            tickets.append(queue.submit(request, deadline_s=0 if kind < 0.6 else None))
            if kind > 0.9:
                tickets[-1].cancel()
        except QueueFull:
            mine["full"] += 1
        except QueueClosed:
            mine["closed"] += 1
    mine["submitted"] = len(tickets)
    mine.update(_outcome(ticket) for ticket in tickets)
    return mine


@pytest.mark.parametrize("seed", range(4))
def test_every_request_is_accounted_for_whatever_happens_to_it(seed: int) -> None:
    """Full lines, failures, deadlines, cancelled requests, and a close in the midst."""
    applied: Counter[Any] = Counter()
    told = Told()
    lives: list[Counter[str]] = []

    def apply(request: tuple[int, int]) -> None:
        if request[1] % 17 == 0:
            raise ValueError(request)
        applied[request] += 1
        if len(applied) == 8 * EACH // 12:
            queue.close(drain=bool(seed % 2), timeout_s=0)

    queue = SingularUpdateQueue(apply, capacity=20, timeout_s=0.001, on_error=told)
    run(
        8,
        lambda producer: lives.append(_live(queue, producer, random.Random(seed * 100 + producer))),
    )
    queue.close()
    stats = queue.stats()
    ends = sum(lives, Counter[str]())
    assert max(applied.values(), default=1) == 1
    assert stats.accepted == ends["posted"] + ends["submitted"]
    assert stats.refused == ends["full"] + ends["closed"]
    assert stats.accepted == stats.applied + stats.failed + stats.expired + stats.cancelled
    assert stats.applied == sum(applied.values())
    assert ends["submitted"] == ends["done"] + ends["failed"] + ends["expired"] + ends["cancelled"]
    assert len(told.errors) == len({request for request, _ in told.errors})
