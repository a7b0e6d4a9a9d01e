"""Tables whose end is not known when their first line is written."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import click

from leaderq.cli.writing import write_table

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
