"""Producers that are closed after the test, and whose books must balance; a place for a journal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from faulty_disk import FaultyDisk
from scripted_sink import AT_ONCE, Make, ScriptedSink

from leaderq.producing import BufferedProducer
from leaderq.producing.journal import line


@pytest.fixture
def sink() -> ScriptedSink:
    return ScriptedSink()


@pytest.fixture
def producer(sink: ScriptedSink) -> Iterator[Make]:
    """Makes a producer for ``sink`` that does not linger, and tries again at once; it has been
    given what it ``sends``."""
    made: list[BufferedProducer] = []

    def make(to: Any = None, sends: Iterable[Any] = (), **options: Any) -> BufferedProducer:
        made.append(
            BufferedProducer(
                to or sink, **{"linger_s": 0.0, "retry": AT_ONCE, "sink_timeout_s": 0.05, **options}
            )
        )
        for request in sends:
            made[-1].send(request)
        return made[-1]

    yield make
    sink.open.set()
    for one in made:
        one.close(0.2)  # what is stuck stays so
        assert one.snapshot().balance.is_exact


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def chores_when_kicked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal's thread does nothing of itself only because time has passed, and tries a disk
    that refuses again at once."""
    monkeypatch.setattr(line, "CHORES_EVERY_S", 86_400.0)
    monkeypatch.setattr(line, "AGAIN_S", 0.01)
