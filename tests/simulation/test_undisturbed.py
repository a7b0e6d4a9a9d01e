"""Whoever does nothing wrong, on servers of which nothing fails, is warned of nothing; and what is
logged in a life is told alike by every Python.
"""

from __future__ import annotations

import logging

import pytest

from leaderq.testing.simulation import installing
from simulation.kinds import KINDS, lives_of

_OF_USER_CODE = (
    "item failed queue=",
    "records failed, trying again career=",
    "career raised an error career=",
    "ticks were passed over career=",
    "no offset is stored, reading begins at=",
)


@pytest.mark.parametrize(
    "module, life, options",
    [
        ("elections", "ElectionLife", {"polite": True}),
        ("queues", "QueueLife", {}),
        ("messages", "MessageLife", {}),
        ("schedules", "ScheduleLife", {}),
        ("drain", "DrainLife", {"zombies": 0}),
        ("coalescing", "CoalescingLife", {}),
    ],
)
def test_an_undisturbed_life_warns_of_nothing_but_the_users_own_errors(
    monkeypatch, module, life, options
):
    monkeypatch.setattr(installing, "NOTED_FROM", logging.WARNING)
    lead = lives_of(module, life, faults=0, **options)
    for seed in range(10):
        verdict = lead(seed)
        warned = [line for line in verdict.history if " logged " in line]
        assert not verdict.problems
        assert [line for line in warned if not any(one in line for one in _OF_USER_CODE)] == []


def test_a_stack_that_is_logged_is_told_by_its_functions():
    """Files and lines, those of Python itself too, differ between versions and machines."""
    history = KINDS["rude careers of coroutines"](4242).history
    (blocked,) = [line for line in history if "event loop is blocked" in line]
    assert " in blocks_thread" in blocked
    assert "_run_once" not in blocked
    assert not any("\n" in line or 'File "' in line for line in history)
