"""When leases are extended and their end is told, by a clock of the test's own."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

from leaderq.dyno import delivery
from leaderq.dyno.delivery import LeaseKeeper

LEASE_S = 30.0


@dataclass(eq=False)
class Held:
    """A delivery, as far as its keeper knows it."""

    until_s: float
    lease_s: float = LEASE_S
    is_settled: bool = False
    lock: Any = field(default_factory=threading.Lock)


class Time:
    """Passes as it is told to; leases are extended by it."""

    def __init__(self) -> None:
        self.now_s = self.began_s = 1000.0
        self.keeper = LeaseKeeper(self.extend_all, lambda: None)
        self.extended: list[float] = []
        self.told: list[tuple[Held, float]] = []

    def extend_all(self, wanted: Any) -> Any:
        for one, lease_s in wanted:
            assert one.until_s > self.now_s, "its lease was over"
            one.until_s = self.now_s + lease_s
            self.extended.append(self.now_s - self.began_s)
        return {one: None for one, _ in wanted}

    def tell(self, one: Any) -> None:
        self.told.append((one, self.now_s - self.began_s))

    def keep(self, most_s: float | None, ending_s: float) -> Any:
        one: Any = Held(self.now_s + LEASE_S)
        self.keeper.keep([one], most_s, self.tell, ending_s)
        return one

    def pass_by(self, seconds: float = math.inf) -> None:
        """``seconds``, or until the keeper has nothing left to do."""
        until_s = self.now_s + seconds
        while (wait_s := self.keeper.extend_due()) < until_s - self.now_s:
            self.now_s += wait_s


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    class AtOnce:
        def __init__(self, _name: str, run: Any) -> None:
            self.start = lambda: run(self)

    passing = Time()
    monkeypatch.setattr("leaderq.base.clock.now_s", lambda: passing.now_s)
    monkeypatch.setattr(delivery, "Service", AtOnce)
    return passing


@pytest.mark.parametrize("ending_s", [5.0, 15.0, 40.0])
@pytest.mark.parametrize("most_s", [0.0, 30.0, 61.0, 75.0, 100.0])
def test_the_end_is_told_once_so_long_before_it(time: Time, most_s: float, ending_s: float) -> None:
    one = time.keep(most_s, ending_s)
    time.pass_by()
    ends_s = max(LEASE_S, most_s)
    assert one.until_s - time.began_s == pytest.approx(ends_s, abs=0.02)
    ((told, at_s),) = time.told
    assert told is one
    assert at_s == pytest.approx(max(0.0, ends_s - ending_s), abs=0.02)
    assert len(time.extended) <= math.ceil(most_s / (LEASE_S * 2 / 3))


def test_what_is_kept_for_ever_is_extended_and_its_end_is_never_told(time: Time) -> None:
    time.keep(None, 5.0)
    time.pass_by(3600.0)
    assert len(time.extended) == pytest.approx(3600 / (LEASE_S * 2 / 3), abs=1)
    assert time.told == []


def test_the_end_of_what_is_let_go_is_not_told(time: Time) -> None:
    one = time.keep(100.0, 5.0)
    time.pass_by(50.0)
    time.keeper.let_go([one])
    time.pass_by()
    assert time.told == []
