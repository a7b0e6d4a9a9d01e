"""How data reaches standard output: tables for people, one JSON object a line for programs. And
how much else is said: a progress bar for a person who watches, and no log but of errors.
"""

from __future__ import annotations

import base64
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from enum import Enum
from itertools import islice
from typing import Any, TypeVar

import click

from leaderq.observability.logging import configure

T = TypeVar("T")
_SAMPLE = 100
_GAP = "  "
_REDRAW_S = 1.0


class Shade(Enum):
    """What a colour says; the value is its name."""

    GOOD = "green"
    WARNING = "yellow"
    BAD = "red"


@dataclass(frozen=True)
class Column:
    """A heading. Where the terminal is too narrow, columns are left out: the highest ``spare``
    first, and never those with 0.
    """

    heading: str
    spare: int = 0


def quiet() -> None:
    """Log errors only."""
    configure("text", "error")


def write_json(value: Mapping[str, Any]) -> None:
    """One object on one line."""
    click.echo(json.dumps(value, default=str, ensure_ascii=False))


def write_rows(rows: Iterable[Mapping[str, Any]], *, as_json: bool) -> int:
    """Write each as JSON as it comes, or all as a table under its names; returns how many there
    were.
    """
    if not as_json:
        found = list(rows)
        headings = [name.replace("_", " ").upper() for name in (found[0] if found else ())]
        return write_table(headings, [list(row.values()) for row in found])
    count = 0
    for count, row in enumerate(rows, 1):  # noqa: B007  (the last one is the answer)
        write_json(row)
    return count


def shaded(text: object, shade: Shade | None) -> str:
    """``text`` in a colour, if standard output is a terminal and ``NO_COLOR`` is not set."""
    wants = (
        sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    )
    return click.style(str(text), fg=shade.value) if wants and shade else str(text)


def write_table(columns: Sequence[str | Column], rows: Iterable[Sequence[Any]]) -> int:
    """Write rows below headings; returns how many there were. Without a row nothing is written.

    Columns are as wide as the widest cell of the first hundred rows; nothing is kept of the others.
    ``None`` is shown as a dash.
    """
    source = iter(rows)
    first = [[_text(cell) for cell in row] for row in islice(source, _SAMPLE)]
    if not first:
        return 0
    known = [one if isinstance(one, Column) else Column(one) for one in columns]
    headings = [one.heading for one in known]
    widths = [
        max(_width(row[column]) for row in (headings, *first)) for column in range(len(known))
    ]
    shown = _that_fit(known, widths)
    count = len(first)
    for row in (headings, *first):
        _write_row(row, widths, shown)
    for each in source:
        _write_row([_text(cell) for cell in each], widths, shown)
        count += 1
    return count


def harmless(text: str) -> str:
    """``text`` as it may be written to a terminal, whoever it comes from."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def json_value(data: bytes | None) -> str | dict[str, str] | None:
    """Text if it is UTF-8, else ``{"base64": ...}``."""
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}


def iso(at_ms: int | None) -> str | None:
    """ISO 8601 in UTC; ``None`` if unknown, or beyond what a calendar holds."""
    moment = _moment(at_ms)
    return moment.isoformat(timespec="milliseconds") if moment else None


def local(at_ms: int | None) -> str | None:
    """As a person's clock shows it; ms since the epoch where no calendar reaches."""
    moment = _moment(at_ms)
    return (
        f"{moment.astimezone():%Y-%m-%d %H:%M:%S}"
        if moment
        else at_ms
        if at_ms is None
        else f"{at_ms} ms"
    )


def _moment(at_ms: int | None) -> datetime | None:
    try:
        return (
            None
            if at_ms is None or at_ms < 0
            else datetime.fromtimestamp(at_ms / 1000, timezone.utc)
        )
    except (OverflowError, ValueError, OSError):
        return None


def since(began: float | None, now: float) -> str | None:
    """An instant (epoch seconds) as local time, with how long ago it was."""
    if began is None:
        return None
    local = datetime.fromtimestamp(began, timezone.utc).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S} ({duration(max(0.0, now - began))})"


def clock_time(at: float) -> str:
    """An instant (epoch seconds) of today as local time."""
    return f"{datetime.fromtimestamp(at, timezone.utc).astimezone():%H:%M:%S}"


def duration(seconds: float) -> str:
    """The two largest units: ``4 s``, ``3 m 20 s``, ``2 h 5 m``, ``6 d 1 h``."""
    whole = int(seconds)
    units = [
        (whole // 86400, "d"),
        (whole // 3600 % 24, "h"),
        (whole // 60 % 60, "m"),
        (whole % 60, "s"),
    ]
    first = next((at for at, (amount, _) in enumerate(units) if amount), len(units) - 1)
    return " ".join(f"{amount} {unit}" for amount, unit in units[first : first + 2])


def redrawn(look: Callable[[], T], show: Callable[[T], None]) -> T:
    """Look and show every second, until Ctrl-C; returns what was seen last."""
    seen = look()
    try:
        while True:
            if sys.stdout.isatty():
                click.clear()
            show(seen)
            sys.stdout.flush()
            time.sleep(_REDRAW_S)
            seen = look()
    except KeyboardInterrupt:
        return seen


@contextmanager
def progress(
    total: int | None, label: str, *, wanted: bool = True
) -> Iterator[Callable[[int], None]]:
    """Yields what is to be told how many more are done. The bar is drawn on standard error, and
    only if that is a terminal.
    """
    if not (wanted and total and sys.stderr.isatty()):
        yield lambda _count: None
        return
    with click.progressbar(
        length=total, label=label, file=sys.stderr, show_pos=True, update_min_steps=200
    ) as bar:
        yield bar.update


def _that_fit(columns: Sequence[Column], widths: Sequence[int]) -> list[int]:
    shown = list(range(len(columns)))
    if not sys.stdout.isatty():
        return shown
    room = shutil.get_terminal_size().columns
    while sum(widths[at] for at in shown) + len(_GAP) * (len(shown) - 1) > room:
        last = max(shown, key=lambda at: columns[at].spare)
        if columns[last].spare == 0:
            break
        shown.remove(last)
    return shown


def _write_row(row: Sequence[str], widths: Sequence[int], shown: Sequence[int]) -> None:
    cells = [row[at] + " " * (widths[at] - _width(row[at])) for at in shown]
    click.echo(_GAP.join(cells).rstrip())


def _width(cell: str) -> int:
    return len(click.unstyle(cell) if "\x1b" in cell else cell)


def _text(cell: Any) -> str:
    return "-" if cell is None else str(cell)
