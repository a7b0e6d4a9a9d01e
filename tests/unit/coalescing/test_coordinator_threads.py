"""Many threads at once: what they saw, and what the automata went through, event by event."""

from __future__ import annotations

import itertools
import random
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from leaderq.coalescing import (
    EnqueueOutcome,
    QueueCoordinator,
    Refusal,
    Token,
    key_table,
)
from leaderq.coalescing.key_table import KeyState

KEYS = "abcde"
Line = tuple[Token[str], ...]


@pytest.fixture(autouse=True)
def _switch_often() -> Iterator[None]:
    """Else a thread does all it has to do before the next one gets the interpreter."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.000_01)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[tuple[str, Line, Line]]]:
    """Each event of each automaton, in order, since it is written down under the lock: what
    happened, the line before, the line after.
    """
    events: dict[str, list[tuple[str, Line, Line]]] = defaultdict(list)

    class Recorded(KeyState):
        __slots__ = ()

        def enqueue(self, owner):
            before = self.line
            outcome = super().enqueue(owner)
            events[owner.key].append((outcome.value, before, self.line))
            return outcome

        def displace(self, owner):
            before = self.line
            displaced = super().displace(owner)
            events[owner.key].append(("displace", before, self.line))
            return displaced

        def dequeue(self, owner):
            before = self.line
            departure = super().dequeue(owner)
            events[owner.key].append((departure.value, before, self.line))
            return departure

    monkeypatch.setattr(key_table, "KeyState", Recorded)
    return events


def check(history: dict[str, list[tuple[str, Line, Line]]], waiters: int) -> None:
    """Never two running: the head changes only by leaving. Never more than ``waiters`` waiting.
    Nobody overtakes.
    """
    for events in history.values():
        line: Line = ()
        for what, before, after in events:
            if what == "accept" and not before:
                line = ()  # the key was forgotten in between
            assert before == line, "somebody changed the line without an event"
            assert len(after) <= waiters + 1
            if what in ("block", "decline", "displace"):
                assert after[0] is before[0], "the head was put out"
            if what == "handed over":
                assert after == before[1:]
            line = after
        assert line == ()


@dataclass
class Ran:
    """What one thread saw of one request."""

    key: str
    asked: int
    outcome: EnqueueOutcome
    refusal: Refusal | None = None
    began: int = 0
    ended: int = 0
    number: int = 0


@dataclass
class Crowd:
    """Threads that work on keys, and a guard that notices if two do at once."""

    coordinator: QueueCoordinator[str]
    ways: list[Callable[[Crowd, str], None]]
    ticks: Iterator[int] = field(default_factory=itertools.count)
    seen: list[Ran] = field(default_factory=list)
    inside: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    faults: list[str] = field(default_factory=list)

    def work(self, token: Token[str], asked: int) -> None:
        ran = Ran(token.key, asked, token.outcome, token.refusal, number=token.number)
        if token:
            ran.began = next(self.ticks)
            self.inside[token.key] += 1
            if self.inside[token.key] != 1:
                self.faults.append(f"{self.inside[token.key]} inside of {token.key}")
            if random.random() < 0.3:
                time.sleep(0)
            self.inside[token.key] -= 1
            ran.ended = next(self.ticks)
        self.seen.append(ran)

    def run(self, threads: int, rounds: int) -> None:
        begin = threading.Barrier(threads)

        def life() -> None:
            begin.wait(120)
            for _ in range(rounds):
                random.choice(self.ways)(self, random.choice(KEYS))

        crowd = [threading.Thread(target=life, daemon=True) for _ in range(threads)]
        for each in crowd:
            each.start()
        for each in crowd:
            each.join(120)
            assert not each.is_alive(), "a thread is stuck"
        assert self.faults == []


def by_hand(crowd: Crowd, key: str) -> None:
    asked = next(crowd.ticks)
    token = crowd.coordinator.enqueue(key, {asked})
    crowd.work(token, asked)
    if token:
        assert crowd.coordinator.dequeue(token)


def in_a_scope(crowd: Crowd, key: str) -> None:
    asked = next(crowd.ticks)
    with crowd.coordinator.hold(key, {asked}) as token:
        crowd.work(token, asked)


@pytest.mark.parametrize("waiters", [0, 1, 3])
def test_a_hundred_threads_never_run_two_at_once_nor_wait_more_than_they_may(history, waiters):
    coordinator: QueueCoordinator[str] = QueueCoordinator(waiters=waiters)
    crowd = Crowd(coordinator, [by_hand, in_a_scope])
    crowd.run(threads=100, rounds=40)
    check(history, waiters)
    assert coordinator.drain(10) == ()
    counters = coordinator.stats()
    assert counters.accepted + counters.promoted + counters.declined == len(crowd.seen) == 4_000
    for key in KEYS:
        runs = sorted(
            (ran.began, ran.ended, ran.number) for ran in crowd.seen if ran.key == key and ran.began
        )
        assert all(
            first[1] < second[0] and first[2] < second[2]
            for first, second in itertools.pairwise(runs)
        )
        last = runs[-1][0]
        if waiters:
            assert all(
                ran.asked < last
                for ran in crowd.seen
                if ran.key == key and ran.refusal is Refusal.FULL
            )
