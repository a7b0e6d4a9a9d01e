"""Writes what verbs return to standard output: tables for people, one JSON object a line for
programs. Lines and progress bars for a person who watches go to standard error; only errors are
logged.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from enum import Enum
from itertools import islice
from typing import Any, TypeVar

import click

from leaderq.admin.text import harmless
from leaderq.base import clock
from leaderq.errors import ConfigurationError
from leaderq.observability.logging import configure

T = TypeVar("T")
_SAMPLE = 100
_GAP = "  "
_REDRAW_S = 1.0


class Shade(Enum):
    """The meaning of a colour; the value is its name."""

    GOOD = "green"
    WARNING = "yellow"
    BAD = "red"


def quiet() -> None:
    configure("text", "error")


def say(sentence: str) -> None:
    """Write a line for people to standard error, where it does not disturb programs. Control
    characters are escaped; if nobody reads the line, it is lost.
    """
    with suppress(OSError):
        click.echo(harmless(sentence), err=True)


def require_output() -> None:
    """Refuse to go on if standard output is closed.

    :raises ConfigurationError: standard output was closed when this process began.
    """
    if sys.__stdout__ is None:
        what = "standard output is closed, and what is written would be lost"
        raise ConfigurationError(f"{what}; redirect it to a file, a pipe or /dev/null")


def json_line(value: Mapping[str, Any]) -> bytes:
    """``value`` as JSON in UTF-8, whatever the locale; a lone surrogate, which has no UTF-8, is
    escaped as JSON escapes it.
    """
    return json.dumps(value, default=str, ensure_ascii=False).encode("utf-8", "backslashreplace")


def write_json(value: Mapping[str, Any]) -> None:
    click.echo(json_line(value))


def conclude(sentence: str, as_json: bool, **values: Any) -> None:
    """Write what a verb has done: ``sentence`` as its last line and, with ``as_json``, ``values``
    as one object.
    """
    try:
        if as_json:
            write_json(values)
    finally:  # also if standard output is full
        say(sentence)


def write_rows(
    found: Iterable[Any],
    as_json: bool,
    nothing: str = "",
    *,
    said: Callable[[Any], Mapping[str, Any]] = dict,
    columns: Sequence[str] = (),
    row: Callable[[Any], Sequence[Any]] | None = None,
    spare: Mapping[str, int] = {},
) -> None:
    """Write results. With ``as_json``, ``said(result)`` is written for each result as it comes.
    Otherwise all results are one table; if there are none, people see the sentence ``nothing``.

    A row of the table is ``row(result)`` below ``columns``; without ``row``, both come from
    ``said(result)``.
    """
    if as_json:
        for each in found:
            write_json(said(each))
        return
    if row is None:
        objects = [said(each) for each in found]
        columns = [name.replace("_", " ").upper() for name in (objects[0] if objects else ())]
        rows: Iterable[Sequence[Any]] = [list(each.values()) for each in objects]
    else:
        rows = map(row, found)
    if not write_table(columns, rows, spare) and nothing:
        say(nothing)


class _Coloured(str):
    """Text that is harmless, between control characters that we added."""

    __slots__ = ()


def shaded(text: object, shade: Shade | None) -> str:
    """``text`` in a colour, if standard output is a terminal and ``NO_COLOR`` is not set. Control
    characters are escaped in any case.
    """
    wants = (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    if not (wants and shade):
        return harmless(str(text))
    return _Coloured(click.style(harmless(str(text)), fg=shade.value))


def write_table(
    columns: Sequence[str], rows: Iterable[Sequence[Any]], spare: Mapping[str, int] = {}
) -> int:
    """Write rows below headings; return the number of rows. Without rows, nothing is written.

    Columns are as wide as the widest cell of the first hundred rows; later rows are not held in
    memory. ``None`` is shown as a dash; control characters are escaped. If the terminal is too
    narrow, the columns in ``spare`` are left out, those with the highest number first.
    """
    source = iter(rows)
    first = [[_text(cell) for cell in row] for row in islice(source, _SAMPLE)]
    if not first:
        return 0
    widths = [max(map(_width, cells)) for cells in zip(columns, *first, strict=True)]
    shown = _that_fit([spare.get(one, 0) for one in columns], widths)
    count = len(first)
    for row in (columns, *first):
        _write_row(row, widths, shown)
    for each in source:
        _write_row([_text(cell) for cell in each], widths, shown)
        count += 1
    return count


def json_value(data: bytes | None) -> str | dict[str, str] | None:
    """``data`` as text if it is UTF-8, else as ``{"base64": ...}``."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def redrawn(look: Callable[[], T], show: Callable[[T], None]) -> T:
    """Call ``look`` and ``show`` every second, until Ctrl-C; return the last result of ``look``."""
    seen = look()
    try:
        while True:
            if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
                click.clear()
            show(seen)
            sys.stdout.flush()
            clock.sleep(_REDRAW_S)
            seen = look()
    except KeyboardInterrupt:
        return seen


@contextmanager
def progress(
    total: int | None, label: str, *, wanted: bool = True
) -> Iterator[Callable[[int], None]]:
    """Yield a function to call with the number of items that were just done.

    The bar is drawn on standard error, and only if that is a terminal.
    """
    if not (wanted and total and sys.stderr.isatty()):
        yield lambda _count: None
        return
    with click.progressbar(
        length=total, label=label, file=sys.stderr, show_pos=True, update_min_steps=200
    ) as bar:
        yield bar.update


def _that_fit(spare: Sequence[int], widths: Sequence[int]) -> list[int]:
    shown = list(range(len(spare)))
    if not sys.stdout.isatty():
        return shown
    room = shutil.get_terminal_size().columns
    while sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1) > room:
        last = max(shown, key=lambda at: spare[at])
        if spare[last] == 0:
            break
        shown.remove(last)
    return shown


def _write_row(row: Sequence[str], widths: Sequence[int], shown: Sequence[int]) -> None:
    cells = [row[at] + " " * (widths[at] - _width(row[at])) for at in shown]
    click.echo(_GAP.join(cells).rstrip())


def _width(cell: str) -> int:
    return len(click.unstyle(cell) if "\x1b" in cell else cell)


def _text(cell: Any) -> str:
    if isinstance(cell, _Coloured):
        return cell
    return "-" if cell is None else harmless(str(cell))
