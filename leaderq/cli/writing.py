"""How data reaches standard output: tables for people, one JSON object a line for programs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import click

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
