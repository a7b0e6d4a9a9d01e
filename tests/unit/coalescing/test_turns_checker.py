"""The checker of histories finds what it is there to find."""

from __future__ import annotations

import pytest
from turns import TurnHistory, What, faults

GOOD = "a came, a began, b came, b waits, c came, c declined, a ended, b began, b ended"


def history(text: str) -> TurnHistory:
    """``request what, ...`` for one key, in this order."""
    made = TurnHistory()
    for each in text.split(", "):
        request, _, what = each.partition(" ")
        made.note("k", request, What(what))
    return made


def test_a_history_in_which_all_is_right_has_no_fault() -> None:
    assert faults(history(GOOD).events) == []
    assert str(history(GOOD)).startswith("3 came, 1 waits, 1 declined, 2 began")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("a came, a began, b came, b began, a ended, b ended", "2 run"),
        (GOOD.replace("a ended, b began", "b began, a ended"), "2 run"),
        ("a began, b waits, c waits, a ended, b began, b ended, c began, c ended", "3 are in line"),
        ("a began, a ended, b ended", "did not run"),
        ("a came, a began", "never ended"),
        (
            "a came, a began, b came, b waits, c came, c declined, b gave up, a ended",
            "c came at 4 and was declined",
        ),
        (
            "a came, a began, b waits, c came, c declined, a ended, b died",
            "c came at 3 and was declined",
        ),
        ("c came, c declined", "the last run began at -1"),
        ("a began, c came, a ended, c declined", "c came at 1 and was declined"),
    ],
)
def test_each_fault_is_found(text: str, fault: str) -> None:
    assert any(fault in one for one in faults(history(text).events)), faults(history(text).events)


def test_keys_are_looked_at_one_by_one() -> None:
    made = history("a came, a began")
    made.note("other", "b", What.CAME)
    made.note("other", "b", What.DECLINED)
    made.note("k", "a", What.ENDED)
    made.note("k", "c", What.BEGAN)
    made.note("k", "c", What.ENDED)
    assert [one.partition(":")[0] for one in faults(made.events)] == ["other"]


@pytest.mark.parametrize("fate", ["gave up", "died"])
def test_who_leaves_makes_room(fate: str) -> None:
    text = f"a began, b waits, b {fate}, c waits, d came, d declined, a ended, c began, c ended"
    assert faults(history(text).events) == []


def test_more_may_wait_where_they_may() -> None:
    text = "a began, b waits, c waits, a ended, b began, b ended, c began, c ended"
    assert faults(history(text).events, waiters=2) == []
    assert faults(history(text).events, waiters=1) != []


def test_who_was_over_before_it_was_known_to_wait_is_not_counted() -> None:
    assert (
        faults(history("a began, b gave up, b waits, c waits, a ended, c began, c ended").events)
        == []
    )
