from __future__ import annotations

import pytest
from held import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The time of deadlines and figures."""
    made = Clock()
    monkeypatch.setattr("leaderq.base.clock.now_s", made)
    return made
