"""What tests of simulated lives share."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from leaderq.testing.simulation.chronicle import LifeVerdict
from leaderq.testing.simulation.installing import lives_in_a_row

SHARE = float(os.environ.get("LEADERQ_LIVES", "1"))
"""Stretches the number of lives that the tests lead."""
BUSY_STEPS = 30_000
"""Steps of a life in which somebody goes round and round; others take a tenth of them."""


def in_chunks(kind: str, lives: int, *, more: int = 0, at_once: int) -> Iterator[Any]:
    """Parameters ``kind`` and ``seeds``: so many lives of a kind, ``at_once`` of them a test, and
    ``more`` that only ``make test-long`` leads.
    """
    for first in range(0, lives + more, at_once):
        seeds = range(int(first * SHARE), int((first + at_once) * SHARE))
        marks = pytest.mark.long if first >= lives else ()
        yield pytest.param(kind, seeds, id=f"{kind}-{seeds.start}", marks=marks)


@pytest.fixture(scope="session")
def what_stands_is_left_alone() -> Iterator[None]:
    """What was collected and what former tests have left is looked through for garbage once, and
    not in each test. Between tests the collector is on.
    """
    with lives_in_a_row():
        gc.enable()
        yield


@pytest.fixture(autouse=True)
def lives_share_what_stands(what_stands_is_left_alone: None) -> Iterator[None]:
    """Nothing is looked through again and again for garbage."""
    with lives_in_a_row():
        yield


@pytest.fixture
def lived() -> Callable[[Callable[[int], LifeVerdict], range], None]:
    """Lead the lives of these seeds; fails with the seed, what was wrong, and the history's end."""

    def check(lead: Callable[[int], LifeVerdict], seeds: range) -> None:
        for seed in seeds:
            verdict = lead(seed)
            problems = list(verdict.problems)
            if verdict.world.steps > BUSY_STEPS:
                problems.append(f"somebody is busy: {verdict.world.steps} steps")
            if problems:
                history = "\n".join(verdict.history[-60:])
                told = "\n".join(problems)
                pytest.fail(f"seed {seed}: {told}\n{history}", pytrace=False)

    return check
