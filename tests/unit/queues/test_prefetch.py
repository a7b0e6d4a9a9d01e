"""What is claimed ahead: how many values, and what goes before it; pure."""

from __future__ import annotations

import pytest

from leaderq.queues.consumers import QueueOptions
from leaderq.queues.consuming.claims import Claim
from leaderq.queues.consuming.prefetch import Prefetch
from leaderq.queues.wire.names import QueueKind, prefix_for, sort_key


def claims(priority: int, count: int, data: bytes = b"") -> list[Claim]:
    prefix = prefix_for(QueueKind.PRIORITY, priority=priority)
    return [
        Claim(f"{prefix}{number:010d}", data, 0, 0, membership=None)  # type: ignore[arg-type]
        for number in range(count)
    ]


def ready(**options: int) -> Prefetch:
    return Prefetch(sort_key(QueueKind.PRIORITY), lambda: True, lambda: None, **options)


@pytest.mark.parametrize("slack", [0, 3])
def test_so_many_are_handed_out_before_a_newcomer_that_is_more_urgent(slack: int) -> None:
    one, (urgent,) = ready(slack=slack), claims(1, 1)
    one.put(claims(10, 8))
    for _ in range(2):  # after each newcomer
        one.has_come(urgent.name)
        assert sum(len(one.take(1, 0)) for _ in range(6)) == slack
        one.put([urgent])
        one.refreshed(one.came, None)
        assert one.take(1, 0) == [urgent]
        one.refreshed(one.came, None)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in seconds, as its only entry."""
    now = [1000.0]
    monkeypatch.setattr("leaderq.clock.now_s", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("work_s", "workers", "ahead"),
    [(0.060, 1, 0), (0.049, 1, 1), (0.005, 1, 10), (0.005, 4, 40), (0.0001, 1, 100)],
)
def test_what_the_workers_do_in_50_ms_is_claimed_ahead_and_at_most_100_values(
    clock: list[float], work_s: float, workers: int, ahead: int
) -> None:
    one = ready(most_ahead=QueueOptions[bytes]().claim_ahead, workers=workers)
    one.put(claims(0, 10))
    one.take(1, 0)
    for _ in range(9):
        clock[0] += work_s
        assert len(one.take(1, 0)) == 1
    assert one.appetite() == ahead


def test_the_work_on_a_znode_of_many_values_is_measured_by_the_value(clock: list[float]) -> None:
    one, (large, small) = ready(), claims(0, 2)
    large.count = 10
    one.put([large, small])
    one.take(1, 0)
    clock[0] += 0.09
    one.take(1, 0)
    assert one.appetite() == 5  # of 9 ms each
