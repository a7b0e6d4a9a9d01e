"""The rules of a coordinator and what it counts, as values."""

from __future__ import annotations

from typing import Any

import pytest

from leaderq.coalescing.rules import (
    CoordinatorStats,
    Debounce,
    KeepIdle,
    Overflow,
    Rules,
)
from leaderq.errors import ConfigurationError
from leaderq.timeouts import AS_SET


def test_by_default_one_waits_for_a_minute_and_newcomers_are_declined() -> None:
    assert Rules() == Rules(1, Overflow.DECLINE_NEW, 60.0, None, None, None)
    assert KeepIdle(5).idle_s is None


@pytest.mark.parametrize(
    "given",
    [
        {"waiters": 0},
        {"waiters": 1, "overflow": Overflow.REPLACE_OLDEST},
        {"overflow": lambda a, b: a},
        {"debounce": Debounce(1, 1)},
        {"idle": KeepIdle(1, 0.5)},
        {"safe_timeout_s": 0.5, "timeout_s": None},
        {"timeout_s": 0},
        {"safe_timeout_s": 1.0},
    ],
)
def test_rules_that_agree_are_taken(given: dict[str, Any]) -> None:
    assert Rules(**given) == Rules(**given)


async def never_run(a: Any, b: Any) -> Any: ...


@pytest.mark.parametrize(
    ("given", "problems"),
    [
        ({"waiters": -1}, ["waiters=-1: give 0 or more"]),
        ({"waiters": 0, "overflow": Overflow.REPLACE_OLDEST}, ["overflow must be DECLINE_NEW"]),
        ({"waiters": 0, "debounce": Debounce(1, 2)}, ["debounce window"]),
        ({"overflow": never_run}, ["overflow (an Overflow, or a function)"]),
        (
            {"overflow": never_run, "waiters": -1},
            ["waiters=-1: give 0 or more", "overflow (an Overflow"],
        ),
        ({"overflow": 5}, ["overflow (an Overflow, or a function)"]),
        ({"idle": KeepIdle(0)}, ["the cap of idle keys=0: give 1 or more"]),
        ({"idle": KeepIdle(1, 0)}, ["idle_s=0: "]),
        ({"idle": KeepIdle(1, -1)}, ["idle_s=-1: "]),
        ({"safe_timeout_s": 0}, ["safe_timeout_s=0: "]),
        ({"debounce": Debounce(0, 2)}, ["delay_s=0: "]),
        ({"debounce": Debounce(1, 0)}, ["max_delay_s=0: "]),
        ({"debounce": Debounce(3, 2)}, ["max_delay_s 2, delay_s 3"]),
        ({"debounce": Debounce(3, "x")}, ["max_delay_s='x': "]),
        ({"timeout_s": -1}, ["timeout_s"]),
        (
            {"waiters": 0, "debounce": Debounce(0, 2), "idle": KeepIdle(0), "timeout_s": "x"},
            ["debounce window", "the cap", "delay_s=0: ", "timeout_s"],
        ),
    ],
)
def test_rules_that_contradict_each_other_are_refused_all_at_once(
    given: dict[str, Any], problems: list[str]
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Rules(**given)
    assert len(refused.value.problems) == len(problems)
    assert [each for each in problems if each not in str(refused.value)] == []


def test_a_request_waits_as_set_or_as_it_says() -> None:
    assert Rules(timeout_s=None).deadline(AS_SET).remaining_s is None
    assert Rules(timeout_s=0).deadline(AS_SET).remaining_s == 0
    assert Rules(timeout_s=0).deadline(None).remaining_s is None
    with pytest.raises(ConfigurationError):
        Rules().deadline(-2)


def test_a_new_coordinator_has_counted_nothing() -> None:
    stats = CoordinatorStats()
    assert {getattr(stats, name) for name in CoordinatorStats.__slots__} == {0}


def test_requests_that_ran_at_once_and_that_were_covered_add_up() -> None:
    stats = CoordinatorStats(runs=10, promoted=3, repeated=2, declined=4, replaced=5, merged=6)
    assert (stats.accepted, stats.saved) == (5, 15)
