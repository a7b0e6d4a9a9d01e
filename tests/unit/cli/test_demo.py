"""What the demo waits for: a slow machine is told from one on which nothing moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.base import clock
from leaderq.cli.demo import stage
from leaderq.cli.demo.stage import DemoStage, StoodStill


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A stage whose looks take 20 s each; ``fed`` grows by one a look, as long as it is below 9."""
    now = SimpleNamespace(s=0.0, fed=0)

    def sleep(_seconds: float) -> None:
        now.s += 20.0
        now.fed = min(9, now.fed + 1)

    monkeypatch.setattr(clock, "now_s", lambda: now.s)
    monkeypatch.setattr(stage.time, "sleep", sleep)
    monkeypatch.setattr(stage, "patience", lambda: 1.0)
    feeding = SimpleNamespace(check=lambda: None)
    return SimpleNamespace(feeding=feeding, _check_processes=lambda: None, contenders={}, now=now)


def test_a_slow_machine_is_waited_for_and_where_nothing_moves_that_is_said(waiting: Any) -> None:
    now = waiting.now

    def wait_for(fed: int) -> None:
        moves = {"timeout_s": 60.0, "progress": lambda: now.fed}
        DemoStage.until(waiting, lambda: now.fed == fed, "all is fed", **moves)

    wait_for(9)
    assert now.s == 180.0
    with pytest.raises(StoodStill, match="waited 60 s in vain until all is fed"):
        wait_for(10)
    assert now.s == 240.0
