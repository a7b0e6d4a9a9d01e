"""``leaderq dead`` and ``leaderq topics`` over a Kafka that is not there."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from leaderq.base.exits import ExitCode
from leaderq.cli import dead, main
from leaderq.kafka import topics
from leaderq.kafka.dead_letters.format import new_dead_letter
from leaderq.kafka.handling import burials
from leaderq.kafka.record import Record


def test_nothing_is_sent_if_a_record_is_too_large(monkeypatch, capsys):
    sent: list[object] = []
    monkeypatch.setattr(topics, "end_offsets", lambda *_, **__: {})
    monkeypatch.setattr(topics, "produce", lambda *given, **_: sent.append(given))
    assert main(["topics", "put", "clicks", "small", "x" * (2**20 + 1)]) == ExitCode.USAGE
    assert "record 2 has 1048577 bytes" in capsys.readouterr().err
    assert not sent
