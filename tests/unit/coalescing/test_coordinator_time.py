"""Safe time-out, debounce, and the thread that sees to them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from leaderq.coalescing import (
    Debounce,
    EnqueueOutcome,
    Overflow,
    QueueCoordinator,
    Refusal,
    Token,
    TokenStage,
    TrafficState,
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
    def test_a_forgotten_head_is_evicted_and_told_and_its_token_is_not_current(self, clock):
        evicted: list[Token[str]] = []
        coordinator: QueueCoordinator[str] = QueueCoordinator(
            safe_timeout_s=5, on_evicted=evicted.append, clock=clock, background=False
        )
        head = coordinator.enqueue("k")
        tail = coordinator.offer("k", lambda token: None)
        clock.now += 4.9
        coordinator.sweep()
        assert head.is_current and not evicted
        clock.now += 0.1
        coordinator.sweep()
        assert evicted == [head] and head.stage is TokenStage.EVICTED and not head.is_current
        assert tail.is_current and tail.number > head.number
        assert not coordinator.dequeue(head) and tail.is_current

    def test_a_newcomer_evicts_at_once_what_nobody_has_looked_at(self, clock):
        coordinator: QueueCoordinator[str] = QueueCoordinator(
            safe_timeout_s=5, clock=clock, background=False
        )
        head = coordinator.enqueue("k")
        clock.now += 5
        newcomer = coordinator.try_enqueue("k")
        assert newcomer.outcome is EnqueueOutcome.ACCEPT and newcomer and not head

    def test_a_promoted_one_has_its_full_time_not_what_is_left_of_its_wait(self, clock):
        coordinator: QueueCoordinator[str] = QueueCoordinator(
            safe_timeout_s=5, clock=clock, background=False
        )
        head = coordinator.enqueue("k")
        tail = coordinator.offer("k", lambda token: None)
        clock.now += 4
        coordinator.dequeue(head)
        clock.now += 4
        coordinator.sweep()
        assert tail

    def test_without_it_nobody_is_ever_evicted(self, clock):
        coordinator: QueueCoordinator[str] = QueueCoordinator(clock=clock)
        head = coordinator.enqueue("k")
        clock.now += 1e9
        coordinator.sweep()
        assert head and not coordinator.try_enqueue("k")

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

    def test_the_work_begins_once_requests_have_stopped_coming(self, clock):
        coordinator = self.make(clock)
        first = coordinator.offer("k", lambda token: None)
        assert (
            first.outcome is EnqueueOutcome.BLOCK and coordinator.state("k") is TrafficState.BLOCK
        )
        clock.now += 1.5
        assert coordinator.offer("k", print).refusal is Refusal.FULL
        clock.now += 1.5
        coordinator.sweep()
        assert not first
        clock.now += 0.5
        coordinator.sweep()
        assert first and first.covers == 1

    def test_it_begins_after_the_maximum_delay_though_requests_go_on(self, clock):
        coordinator = self.make(clock)
        first = coordinator.offer("k", lambda token: None)
        for _ in range(4):
            clock.now += 1.25
            assert not first
            coordinator.sweep()
            coordinator.offer("k", print)
        coordinator.sweep()
        assert first

    def test_with_replacement_the_last_request_is_the_one_that_runs(self, clock):
        coordinator = self.make(clock, overflow=Overflow.REPLACE_OLDEST)
        tokens = [coordinator.offer("k", lambda token: None, number) for number in range(5)]
        clock.now += 2
        coordinator.sweep()
        assert [bool(token) for token in tokens] == [False] * 4 + [True]

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
