"""How data reaches standard output: tables for people, one JSON object a line for programs. And
how much else is said: a progress bar for a person who watches, and no log but of errors.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from itertools import islice
from typing import Any

import click

from leaderq.observability.logging import configure


def quiet() -> None:
    """Log errors only."""
    configure("text", "error")


_NOTHING = "-"


def write_json(value: Mapping[str, Any]) -> None:
    """One object on one line."""
    click.echo(json.dumps(value, default=str, ensure_ascii=False))


def write_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Columns as wide as their widest cell; ``None`` is shown as a dash."""
    cells = [list(headings), *([_NOTHING if cell is None else str(cell) for cell in row] for row in rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headings))]
    for row in cells:
        click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def since(began: float | None, now: float) -> str | None:
    """An instant (epoch seconds) as local time, with how long ago it was."""
    if began is None:
        return None
    local = datetime.fromtimestamp(began, timezone.utc).astimezone()
    return f"{local:%Y-%m-%d %H:%M:%S} ({duration(max(0.0, now - began))})"


def duration(seconds: float) -> str:
    """The two largest units: ``4 s``, ``3 m 20 s``, ``2 h 5 m``, ``6 d 1 h``."""
    whole = int(seconds)
    units = [(whole // 86400, "d"), (whole // 3600 % 24, "h"), (whole // 60 % 60, "m"), (whole % 60, "s")]
    first = next((at for at, (amount, _) in enumerate(units) if amount), len(units) - 1)
    return " ".join(f"{amount} {unit}" for amount, unit in units[first : first + 2])


_SAMPLE = 100


def write_long_table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> int:
    """As ``write_table``, with widths that fit the first hundred rows, and nothing kept of the others; gives how many there were. Without
    a row nothing is written."""
    source: Iterator[Sequence[Any]] = iter(rows)
    first = list(islice(source, _SAMPLE))
    if not first:
        return 0
    write_table(headings, first)
    widths = [max(len(_text(row[column])) for row in (headings, *first)) for column in range(len(headings))]
    count = len(first)
    for row in source:
        click.echo("  ".join(_text(cell).ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
        count += 1
    return count


def _text(cell: Any) -> str:
    return "-" if cell is None else str(cell)


def _unseen(count: int) -> None:
    """Nobody watches."""


@contextmanager
def progress(total: int | None, label: str, *, wanted: bool = True) -> Iterator[Callable[[int], None]]:
    """Gives what is to be told how many more are done. The bar is drawn on standard error, and only if that is a terminal."""
    if not (wanted and total and sys.stderr.isatty()):
        yield _unseen
        return
    with click.progressbar(length=total, label=label, file=sys.stderr, show_pos=True, update_min_steps=200) as bar:
        yield bar.update
