"""Sinks that do not keep to what is asked of a sink: the producer says so, gives nothing up for it,
and goes on.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from mute import TOLD, Mute
from scripted_sink import Make

from leaderq.errors import SinkAway
from leaderq.producing import ALL_CONFIRMED, BatchOutcome
from leaderq.testing import eventually

ERROR = ValueError("of the user")


def spoilt() -> Iterator[int]:
    yield 0
    raise LookupError("no more")


class _FaultySink:
    """``fault`` makes each of its answers while it is set; the batches it was given are in
    ``calls``.
    """

    def __init__(self, fault: Callable[[], Any]) -> None:
        self.fault: Callable[[], Any] | None = fault
        self.calls: list[list[Any]] = []
        self.confirmed: list[Any] = []

    def send(self, batch: Sequence[Any], timeout_s: float) -> Any:
        self.calls.append(list(batch))
        if self.fault is not None:
            return self.fault()
        self.confirmed += batch
        return ALL_CONFIRMED

    def close(self, timeout_s: float) -> None:
        pass


def raises(error: BaseException) -> Callable[[], Any]:
    def fault() -> Any:
        raise error

    return fault


FAULTS: dict[str, tuple[Callable[[], Any], str]] = {
    "nothing": (lambda: None, "NoneType"),
    "a boolean": (lambda: True, "bool"),
    "a bare tuple": (lambda: ({}, (), None), "tuple"),
    "refused beyond": (lambda: BatchOutcome({7: ERROR}), "position 7"),
    "refused before": (lambda: BatchOutcome({-1: ERROR}), "position -1"),
    "refused at no number": (lambda: BatchOutcome({"0": ERROR}), "'0'"),  # type: ignore[dict-item]
    "refused at a broken number": (lambda: BatchOutcome({0.0: ERROR}), "0.0"),  # type: ignore[dict-item]
    "refused for nothing": (lambda: BatchOutcome({0: None}), "None"),  # type: ignore[dict-item]
    "refused as a list": (lambda: BatchOutcome([0]), "list"),  # type: ignore[arg-type]
    "again beyond": (lambda: BatchOutcome(again=[0, 7], error=SinkAway("away")), "position 7"),
    "again just beyond": (
        lambda: BatchOutcome(again=[0, 1, 2, 3], error=SinkAway("away")),
        "position 3",
    ),
    "again before": (lambda: BatchOutcome(again=[-1]), "position -1"),
    "again at no number": (lambda: BatchOutcome(again=[None]), "None"),  # type: ignore[list-item]
    "again as a number": (lambda: BatchOutcome(again=1), "int"),  # type: ignore[arg-type]
    "again as nothing": (lambda: BatchOutcome(again=None), "NoneType"),  # type: ignore[arg-type]
    "again from what raises": (lambda: BatchOutcome(again=spoilt()), "no more"),  # type: ignore[arg-type]
    "an error in words": (lambda: BatchOutcome(again=[0], error="away"), "str"),  # type: ignore[arg-type]
    "an exit": (raises(SystemExit(1)), "SystemExit"),
    "an error without a text": (raises(Mute()), TOLD),
    "a cancellation": (raises(asyncio.CancelledError()), "CancelledError"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_an_answer_that_is_none_of_the_batch_is_told_and_costs_nothing(
    producer: Make, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    fault, words = FAULTS[name]
    sink = _FaultySink(fault)
    with caplog.at_level(logging.WARNING):
        one = producer(sink, batch_items=3, linger_s=60.0)
        for number in range(3):
            one.send(number)
        eventually(lambda: len(sink.calls) > 2)  # it tries again and again
    assert sink.calls[:2] == [[0, 1, 2]] * 2
    assert words in str(one.snapshot().sink_error)
    assert words in caplog.text
    balance = one.snapshot().balance
    assert (balance.pending, balance.failed, balance.confirmed) == (3, {}, 0)
    sink.fault = None
    assert one.flush(60)
    assert sink.confirmed == [0, 1, 2]


def test_a_listener_or_a_callback_that_exits_ends_nothing(
    producer: Make, caplog: pytest.LogCaptureFixture
) -> None:
    sink = _FaultySink(lambda: BatchOutcome({0: ERROR}))
    heard: list[str] = []

    def exits(what: Any) -> None:
        heard.append(type(what).__name__)
        sys.exit(1)

    one = producer(sink, dropped_listener=exits, batch_items=1)
    one.send("refused")
    eventually(lambda: heard)
    sink.fault = None
    futures: list[Future[None]] = [one.submit(number) for number in range(2)]
    for future in futures:
        future.add_done_callback(exits)
    one.send("last")
    assert one.flush(60).pending == 0
    assert sink.confirmed == [0, 1, "last"]
    assert [future.result(60) for future in futures] == [None, None]
    assert "listener" in caplog.text
