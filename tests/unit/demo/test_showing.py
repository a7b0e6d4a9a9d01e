"""Pace, screen, live lines and the reading of logs."""

from __future__ import annotations

import io
import json

import pytest

from leaderq.cli.demo.report import Screen
from leaderq.cli.demo.show import status
from leaderq.cli.demo.stage import Pace, events_in
from leaderq.election.observer import View

PACE = Pace(records=1000, planned_s=10.0)


def test_the_pace_is_steady_and_begins_at_once() -> None:
    assert PACE.due(0.0, None) == 1
    assert PACE.due(5.0, None) == 451
    assert PACE.due(10.0, None) == 901


def test_the_feed_does_not_run_dry_while_changes_take_longer() -> None:
    assert 901 < PACE.due(15.0, None) < 1000
    assert PACE.due(1000.0, None) == 999


@pytest.mark.parametrize(("released_at", "fed"), [(4.0, 360), (12.0, 920), (1000.0, 999)])
def test_the_rest_is_fed_quickly_and_to_the_last(released_at: float, fed: int) -> None:
    assert PACE.due(released_at, (released_at, fed)) == fed + 1
    assert PACE.due(released_at + 10.0, (released_at, fed)) == 1000


def test_without_a_terminal_there_are_no_control_characters() -> None:
    stream = io.StringIO()
    screen = Screen(stream, live=False)
    screen.show(["leader a", "fed 1"])
    screen.show(["leader a", "fed 2"])
    screen.tell("something happened")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 2  # the second look came within the interval
    assert lines[0].endswith("leader a; fed 1")
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()


def test_on_a_terminal_the_live_lines_stay_at_the_bottom() -> None:
    stream = io.StringIO()
    screen = Screen(stream, live=True)
    screen.show(["one", "two"])
    screen.write("said")
    screen.show([])
    assert stream.getvalue() == "one\ntwo\n\x1b[2F\x1b[Jsaid\none\ntwo\n\x1b[2F\x1b[J"


def test_a_live_line_wider_than_the_terminal_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    stream = io.StringIO()
    Screen(stream, live=True).show(["x" * 50])
    assert stream.getvalue() == "x" * 19 + "\n"


def view(**changes: object) -> View:
    given = {
        "career": "c", "leader": "a", "host": "h", "pid": 1, "term": 3, "stage": "execution",
        "began": 100.0, "ended": None, "reason": None, "paused": False,
        "candidates": ("a", "b"), **changes,
    }  # fmt: skip
    return View(**given)  # type: ignore[arg-type]


def test_the_live_lines_say_who_leads_and_how_far_the_work_is() -> None:
    assert status(view(), 1200, 1000, 250.4, 102.5) == [
        "leader a   term 3, execution, for 2.5 s   waiting: b",
        "fed 1,200   billed 1,000   lag 200   250 records/s",
    ]


def test_the_live_lines_say_that_nobody_leads() -> None:
    lead, work = status(view(leader=None, stage=None, candidates=()), 5, 9, 0.0, 0.0)
    assert lead == "leader -   term 3, over   waiting: nobody"
    assert "lag 0" in work


def test_a_log_is_read_past_what_is_no_event() -> None:
    good = json.dumps({"event": "standing", "time": "2026-01-02T03:04:05.250Z", "candidate": "a"})
    told = events_in(
        f'Traceback (most recent call last):\n{good}\n{{"time": 1}}\n[]\n{{"event": "half'
    )
    assert [(said.event, said.at, said.fields["candidate"]) for said in told] == [
        ("standing", 1767323045.25, "a")
    ]
