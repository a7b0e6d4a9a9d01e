"""Signals to the demo: the first one interrupts; none disturbs the clearing up."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from leaderq.cli.demo.stage import interrupt_once, shield

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@pytest.fixture(autouse=True)
def interrupted_once() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in SIGNALS}
    interrupt_once()
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", SIGNALS)
def test_the_first_signal_interrupts_and_the_others_do_nothing(number: signal.Signals) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    for other in SIGNALS:
        signal.raise_signal(other)


def test_nothing_disturbs_the_clearing_up() -> None:
    shield()
    for number in SIGNALS:
        signal.raise_signal(number)
