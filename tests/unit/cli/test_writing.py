"""Tables, colours and durations, as people read them."""

from __future__ import annotations

import os
import shutil
import sys

import click
import pytest

from leaderq.cli.output import Shade, duration, shaded, write_table


@pytest.fixture
def terminal(monkeypatch, capsys):
    """Standard output is a terminal of so many columns."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")

    def of(columns):
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
        monkeypatch.setattr(
            shutil, "get_terminal_size", lambda *_, **__: os.terminal_size((columns, 24))
        )

    return of


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (59.9, "59 s"),
        (60, "1 m 0 s"),
        (200, "3 m 20 s"),
        (7500, "2 h 5 m"),
        (90000, "1 d 1 h"),
        (-50.0, "0 s"),  # since an instant in the future of a crooked clock
    ],
)
def test_a_duration_is_told_in_its_two_largest_units(seconds, text):
    assert duration(seconds) == text


def test_a_narrow_terminal_is_shown_fewer_columns_and_never_too_few(capsys, terminal):
    columns, spare = ("A", "SPARE", "B", "LESS"), {"SPARE": 2, "LESS": 1}
    row = [("a" * 9, "s" * 9, "b" * 9, "l" * 9)]
    for width, wanted in (
        (42, ["A", "SPARE", "B", "LESS"]),
        (41, ["A", "B", "LESS"]),
        (30, ["A", "B"]),
        (5, ["A", "B"]),
    ):
        terminal(width)
        write_table(columns, row, spare)
        assert capsys.readouterr().out.split("\n")[0].split() == wanted


def test_colours_are_for_terminals_that_want_them_and_take_no_room(capsys, monkeypatch, terminal):
    assert shaded("a", Shade.BAD) == "a"
    terminal(80)
    red = shaded("a", Shade.BAD)
    assert red != "a"
    assert shaded("a", None) == "a"
    monkeypatch.setenv("NO_COLOR", "1")
    assert shaded("a", Shade.BAD) == "a"
    write_table(("H", "X"), [(red, "x"), ("ab", "y")])
    lines = click.unstyle(capsys.readouterr().out).splitlines()
    assert [line.index(last) for line, last in zip(lines, "Xxy", strict=True)] == [4, 4, 4]
