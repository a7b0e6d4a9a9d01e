"""Bells are rung outside of all locks, by whoever passes: perhaps before what they tell has come about."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from leaderq.coalescing import Overflow, QueueCoordinator, Stage, Token
from leaderq.errors import CoordinatorClosed
from leaderq.testing import eventually


class AskedFor:
    """A lock that counts how often it was asked for."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.times = 0

    def __enter__(self) -> None:
        self.times += 1
        self.lock.acquire()

    def __exit__(self, *_: object) -> None:
        self.lock.release()


class HeldUp(deque[Any]):
    """An outbox: who first puts something into it is held up until another thread has rung it, or asks for the lock."""

    def __init__(self, lock: AskedFor, heard: list[Any]) -> None:
        super().__init__()
        self.lock, self.heard = lock, heard
        self.has_news = threading.Event()

    def append(self, entry: Any) -> None:
        times = self.lock.times
        super().append(entry)
        if not self.has_news.is_set():
            self.has_news.set()
            eventually(lambda: self.heard or self.lock.times > times)

    def extend(self, entries: Any) -> None:
        for entry in entries:
            self.append(entry)


class Scene:
    """One runs, one waits, on a clock of their own; what is told of them is told in the midst of the change."""

    def __init__(self, **rules: Any) -> None:
        self.now = 0.0
        self.heard: list[tuple[Token[str], Stage]] = []
        self.coordinator: QueueCoordinator[str] = QueueCoordinator(
            stripes=1, clock=lambda: self.now, background=False, on_evicted=self.hear, **rules
        )
        (self.stripe,) = self.coordinator._stripes
        self.head = self.coordinator.offer("k", self.hear)
        self.tail = self.coordinator.offer("k", self.hear)

    def hear(self, token: Token[str]) -> None:
        self.heard.append((token, token.stage))

    def while_another_passes(self, change: Callable[[], object]) -> None:
        lock = self.stripe._lock = AskedFor()
        outbox = self.stripe.outbox = HeldUp(lock, self.heard)
        with ThreadPoolExecutor(2) as pool:
            changing = pool.submit(change)
            assert outbox.has_news.wait(60)
            passing = pool.submit(self.stripe.deliver)
            changing.result(60)
            passing.result(60)

    def evict(self) -> None:
        self.now = 9.0
        self.coordinator.sweep()


@pytest.mark.parametrize(
    ("rules", "change", "who", "stage"),
    [
        ({}, lambda scene: scene.coordinator.dequeue(scene.head), "tail", Stage.RUNNING),
        ({"overflow": Overflow.REPLACE_OLDEST}, lambda scene: scene.coordinator.offer("k", print), "tail", Stage.DECLINED),
        ({}, lambda scene: scene.coordinator.drain(0), "tail", Stage.ABANDONED),
        ({"safe_timeout_s": 5}, Scene.evict, "head", Stage.EVICTED),
    ],
    ids=["its turn", "replaced", "closed", "evicted"],
)
def test_whoever_is_called_by_a_thread_that_passes_finds_done_what_it_is_told(rules, change, who, stage):
    scene = Scene(**rules)
    scene.while_another_passes(lambda: change(scene))
    assert scene.heard[0] == (getattr(scene, who), stage)
    assert [token for token, _ in scene.heard].count(getattr(scene, who)) == 1


def test_a_reservation_that_a_passing_thread_fulfils_is_not_fulfilled_with_what_will_never_run():
    scene = Scene()
    scene.coordinator.dequeue(scene.tail)
    future = scene.coordinator.reserve("k")
    future.add_done_callback(lambda done: scene.heard.append(done))
    scene.while_another_passes(lambda: scene.coordinator.drain(0))
    with pytest.raises(CoordinatorClosed):
        future.result(0)
