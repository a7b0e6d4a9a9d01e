"""When leases are extended, by a clock of the test's own."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from typing import Any

import pytest

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

    def extend_all(self, wanted: Any) -> Any:
        for one, lease_s in wanted:
            assert one.until_s > self.now_s, "its lease was over"
            one.until_s = self.now_s + lease_s
            self.extended.append(self.now_s - self.began_s)
        return {one: None for one, _ in wanted}

    def keep(self, most_s: float | None) -> Any:
        one: Any = Held(self.now_s + LEASE_S)
        self.keeper.keep([one], most_s)
        return one

    def pass_by(self, seconds: float = math.inf) -> None:
        """``seconds``, or until the keeper has nothing left to do."""
        until_s = self.now_s + seconds
        while (wait_s := self.keeper.extend_due()) < until_s - self.now_s:
            self.now_s += wait_s


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    passing = Time()
    monkeypatch.setattr("leaderq.base.clock.now_s", lambda: passing.now_s)
    return passing


@pytest.mark.parametrize("most_s", [0.0, 30.0, 61.0, 75.0, 100.0])
def test_what_is_kept_is_extended_until_then_and_no_longer(time: Time, most_s: float) -> None:
    one = time.keep(most_s)
    time.pass_by()
    assert one.until_s - time.began_s == pytest.approx(max(LEASE_S, most_s), abs=0.02)
    assert len(time.extended) <= math.ceil(most_s / (LEASE_S * 2 / 3))


def test_what_is_kept_for_ever_is_extended_until_it_is_let_go(time: Time) -> None:
    one = time.keep(None)
    time.pass_by(3600.0)
    extended = len(time.extended)
    assert extended == pytest.approx(3600 / (LEASE_S * 2 / 3), abs=1)
    time.keeper.let_go([one])
    time.pass_by()
    assert len(time.extended) == extended
