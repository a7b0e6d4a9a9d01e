"""Signals to the demo: the first one interrupts, unless something is being started; none disturbs
the clearing up.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from leaderq.cli.demo.stage import Interruption


@pytest.fixture
def interruption() -> Iterator[Interruption]:
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    }
    installed = Interruption()
    installed.install()
    yield installed
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_interrupts_and_the_second_does_nothing(
    interruption: Interruption, number: signal.Signals
) -> None:
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(number)
    signal.raise_signal(number)


def test_a_signal_waits_for_what_is_being_started(interruption: Interruption) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), interruption.held():
        signal.raise_signal(signal.SIGINT)
        done.append("started")
    assert done == ["started"]


def test_a_start_that_fails_is_told_before_the_interruption(interruption: Interruption) -> None:
    with pytest.raises(ValueError, match="no start"), interruption.held():
        signal.raise_signal(signal.SIGINT)
        raise ValueError("no start")


def test_nothing_disturbs_the_clearing_up(interruption: Interruption) -> None:
    interruption.shield()
    signal.raise_signal(signal.SIGTERM)
    with interruption.held():
        signal.raise_signal(signal.SIGINT)
