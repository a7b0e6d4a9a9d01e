from __future__ import annotations

import pytest

from leaderq.base import clock


@pytest.fixture
def at(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, 100 s, which passes only when a test says so."""
    now = [100.0]
    monkeypatch.setattr(clock, "now_s", lambda: now[0])
    return now
