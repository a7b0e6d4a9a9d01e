"""Users who do what the documentation does not mention: a coordinator takes it, or says so at
once.
"""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from forks import in_child

from leaderq.arguments import NotAPlainFunction
from leaderq.coalescing import (
    AsyncQueueCoordinator,
    Debounce,
    KeepIdle,
    QueueCoordinator,
    TokenStage,
    TrafficState,
)
from leaderq.errors import ConfigurationError, WaitTimedOut
from leaderq.testing.waiting import patience

WAIT_S = 60.0 * patience()


class Rude(BaseException):
    """Not an Exception, and nothing that anybody expects."""


@pytest.mark.parametrize("raised", [Rude, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_a_call_that_raises_anything_gives_the_key_back_and_the_one_who_called_hears_of_it(
    raised: type[BaseException],
) -> None:
    def on_turn(_: object) -> None:
        raise raised

    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=2)
    head = coordinator.offer("k", print)
    coordinator.offer("k", on_turn)
    last = coordinator.offer("k", lambda token: None)
    with pytest.raises(raised):
        coordinator.dequeue(head)
    assert last.is_current and coordinator.dequeue(last)
    assert coordinator.state("k") is TrafficState.INIT


async def _coroutine(*_: object) -> None: ...


def _generator(*_: object) -> Iterator[None]:
    yield


@pytest.mark.parametrize("unfinished", [_coroutine, _generator])
def test_a_function_that_returns_work_for_somebody_else_to_do_is_told_and_keeps_no_key(
    unfinished: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    """As a lambda does that calls an async function: that it would is seen only when it did."""
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    merging: QueueCoordinator[str] = QueueCoordinator(overflow=lambda a, b: unfinished(a, b))
    for _ in range(2):
        merging.offer("k", print, 1)
    calls: list[Callable[[], object]] = [
        lambda: coordinator.run("k", lambda: unfinished()),
        coordinator.coalesced(key=lambda: "k")(lambda: unfinished()),
        lambda: merging.offer("k", print, 1),
    ]
    for call in calls:
        with pytest.raises(NotAPlainFunction):
            call()
    with coordinator.hold("k"):
        token = coordinator.offer("k", lambda token: unfinished(token))
    assert not token and "returned" in caplog.text
    assert coordinator.state("k") is TrafficState.INIT


@pytest.mark.parametrize("wrong", [-1.0, math.nan, "1", True])
def test_what_is_no_time_is_refused_by_all_that_take_one(wrong: Any) -> None:
    coordinator: QueueCoordinator[str] = QueueCoordinator()
    calls: list[Callable[[], object]] = [
        lambda: coordinator.enqueue("k", timeout_s=wrong),
        lambda: coordinator.run("k", list, timeout_s=wrong),
        lambda: coordinator.hold("k", timeout_s=wrong).__enter__(),
        lambda: coordinator.drain(wrong),
        lambda: asyncio.run(AsyncQueueCoordinator(coordinator).enqueue("k", timeout_s=wrong)),
        lambda: QueueCoordinator(timeout_s=wrong),
        lambda: QueueCoordinator(safe_timeout_s=wrong),
        lambda: QueueCoordinator(debounce=Debounce(wrong, 1)),
        lambda: QueueCoordinator(idle=KeepIdle(64, wrong)),
    ]
    for call in calls:
        with pytest.raises(ConfigurationError):
            call()
    assert coordinator.stats().runs == 0


def test_a_forked_child_has_no_keys_whatever_its_parent_was_doing() -> None:
    coordinator: QueueCoordinator[str] = QueueCoordinator(safe_timeout_s=30, idle=KeepIdle(cap=64))
    mine = coordinator.enqueue("mine")
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            with coordinator.hold("k", timeout_s=None):
                pass

    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    coordinator.offer("mine", print)

    def check() -> None:
        assert not mine and mine.stage is TokenStage.ABANDONED
        assert coordinator.stats().running == coordinator.stats().waiting == 0
        with coordinator.hold("mine") as own, coordinator.hold("k") as other:
            assert own.number > mine.number and other
            with pytest.raises(WaitTimedOut):
                coordinator.enqueue("k", timeout_s=0.01, owner=None)
            coordinator.drain(0)

    for _ in range(20):
        in_child(check)
    stop.set()
    for thread in threads:
        thread.join(WAIT_S)
    assert mine and coordinator.dequeue(mine)
