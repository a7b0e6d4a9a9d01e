"""kafka-python warns of itself when it is imported, and warnings are errors here; leaderq.kafka
imports it without.
"""

from __future__ import annotations

import pytest
from few_znodes import FewZnodes

import leaderq.kafka  # noqa: F401
from leaderq.kafka.handling.on_error import OnError


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(OnError, "pause_s", lambda _self, _times: 0.001)


@pytest.fixture
def servers() -> FewZnodes:
    return FewZnodes()
