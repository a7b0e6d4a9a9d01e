"""Tables and durations, as people read them."""

from __future__ import annotations

import pytest

from leaderq.cli.output import duration, since, write_table


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "0 s"), (59.9, "59 s"), (60, "1 m 0 s"), (200, "3 m 20 s"), (7500, "2 h 5 m"), (90000, "1 d 1 h")],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds, text):
    assert duration(seconds) == text


def test_an_instant_in_the_future_of_a_crooked_clock_is_no_negative_duration():
    assert (since(100.0, 50.0) or "").endswith("(0 s)")
    assert since(None, 50.0) is None


def test_columns_are_as_wide_as_their_widest_cell(capsys):
    write_table(("A", "LONG"), [("wide", None), ("", 3)])
    assert capsys.readouterr().out == "A     LONG\nwide  -\n      3\n"
