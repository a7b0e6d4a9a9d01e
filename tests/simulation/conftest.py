"""What tests of simulated lives share."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator

import pytest

from leaderq.testing.simulation.chronicle import LifeVerdict

SHARE = float(os.environ.get("LEADERQ_LIVES", "1"))
"""Stretches the number of lives that the tests lead."""


@pytest.fixture(autouse=True)
def lives_share_what_stands() -> Iterator[None]:
    """What was imported is not looked through again at each collection of garbage."""
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def lived() -> Callable[[Callable[[int], LifeVerdict], range], None]:
    """Lead the lives of these seeds; fails with the seed, what was wrong, and the history's end."""

    def check(lead: Callable[[int], LifeVerdict], seeds: range) -> None:
        for seed in seeds:
            verdict = lead(seed)
            if verdict.problems:
                history = "\n".join(verdict.history[-60:])
                told = "\n".join(verdict.problems)
                pytest.fail(f"seed {seed}: {told}\n{history}", pytrace=False)

    return check
