"""A store that is out of order behind its real client, and what may come of it: nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leaderq.producing import EVERY_ITEM, BufferedProducer, Retry, Sink
from leaderq.testing import eventually

RECORDS = 200


class Outage:
    """Stores batches in a list, but while ``is_out`` does what ``fail`` does, which must raise."""

    def __init__(self) -> None:
        self.is_out = True
        self.stored: list[Any] = []
        self.error: BaseException | None = None
        self.attempts = 0

    def fail(self, batch: list[Any]) -> None:
        raise NotImplementedError

    def __call__(self, batch: list[Any]) -> None:
        if self.is_out:
            self.attempts += 1
            try:
                self.fail(batch)
            except BaseException as exc:
                self.error = exc
                raise
            raise AssertionError("the outage let a batch pass")
        self.stored += batch


def loses_nothing(
    sink: Sink,
    outage: Outage,
    journal: Path,
    caplog: pytest.LogCaptureFixture,
    stored: Callable[[], list[Any]] | None = None,
    end: Callable[[], None] = lambda: None,
) -> None:
    """Send 200 records into the outage, end it, and find all of them stored in order."""
    retry = Retry(first_s=0.001, most_s=0.02)
    with BufferedProducer(
        sink, journal=journal, persistence=EVERY_ITEM, linger_s=0.0, retry=retry, max_items=50
    ) as producer:
        for number in range(RECORDS):
            producer.send(number, on_durable=lambda error: None)
        eventually(lambda: outage.attempts >= 3 and producer.snapshot().sink_error is not None)
        balance = producer.snapshot().balance
        assert (balance.failed, balance.dropped, balance.pending) == ({}, {}, RECORDS)
        assert "sink takes nothing, requests are kept" in caplog.text
        assert type(outage.error).__name__ in caplog.text
        end()
        outage.is_out = False
        assert producer.flush(60)
        assert producer.snapshot().balance.confirmed == RECORDS
    assert (outage.stored if stored is None else stored()) == list(range(RECORDS))
