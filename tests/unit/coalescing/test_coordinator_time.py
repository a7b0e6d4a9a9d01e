"""Safe time-out, debounce, and the thread that sees to them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from leaderq.coalescing import (
    Debounce,
    EnqueueOutcome,
    QueueCoordinator,
    Refusal,
    Token,
    TokenStage,
)
from leaderq.testing import eventually


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


class TestSafeTimeout:
    def test_a_newcomer_evicts_at_once_what_nobody_has_looked_at(self, clock):
        coordinator: QueueCoordinator[str] = QueueCoordinator(
            safe_timeout_s=5, clock=clock, background=False
        )
        head = coordinator.enqueue("k")
        clock.now += 5
        newcomer = coordinator.try_enqueue("k")
        assert newcomer.outcome is EnqueueOutcome.ACCEPT and newcomer and not head

    def test_a_thread_that_waits_need_not_do_anything_for_it(self, clock):
        evicted: list[Token[str]] = []
        coordinator: QueueCoordinator[str] = QueueCoordinator(
            safe_timeout_s=0.02, on_evicted=evicted.append, clock=clock
        )
        head = coordinator.enqueue("k")
        with ThreadPoolExecutor(1) as pool:
            waits = pool.submit(coordinator.enqueue, "k")
            eventually(lambda: coordinator.stats().waiting == 1)
            clock.now += 0.02
            tail = waits.result(60)
        assert tail.outcome is EnqueueOutcome.BLOCK and tail
        eventually(lambda: evicted == [head])


class TestDebounce:
    def make(self, clock: Clock, **rules: object) -> QueueCoordinator[str]:
        return QueueCoordinator(
            debounce=Debounce(2, max_delay_s=5), clock=clock, background=False, **rules
        )

    def test_what_comes_while_it_runs_waits_for_the_quiet_too(self, clock):
        coordinator = self.make(clock)
        first = coordinator.offer("k", lambda token: None)
        clock.now += 2
        coordinator.sweep()
        second = coordinator.offer("k", lambda token: None)
        clock.now += 1
        coordinator.dequeue(first)
        assert second.stage is TokenStage.WAITING
        assert coordinator.offer("k", print).refusal is Refusal.FULL
        clock.now += 2
        coordinator.sweep()
        assert second

    def test_it_happens_by_itself(self):
        coordinator: QueueCoordinator[str] = QueueCoordinator(debounce=Debounce(0.02, 0.1))

        def work(_: int) -> EnqueueOutcome:
            with coordinator.hold("k") as token:
                return token.outcome

        with ThreadPoolExecutor(8) as pool:
            outcomes = set(pool.map(work, range(8)))
        assert EnqueueOutcome.BLOCK in outcomes and EnqueueOutcome.ACCEPT not in outcomes
        assert coordinator.drain(10) == ()
