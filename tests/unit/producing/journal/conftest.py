"""What the tests of the journal share."""

from __future__ import annotations

from pathlib import Path

import pytest

from leaderq.producing.journal import line


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def chores_when_kicked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal's thread does nothing of itself only because time has passed, and tries a disk
    that refuses again at once."""
    monkeypatch.setattr(line, "CHORES_EVERY_S", 86_400.0)
    monkeypatch.setattr(line, "AGAIN_S", 0.01)
