"""Bars from the tables that stand in the pages: a figure is written once, where it is explained."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from pictures.canvas import Canvas

Row = list[str]


def tables(page: Path) -> Iterator[list[Row]]:
    """The tables of a page in Markdown: their cells, the heads first."""
    table: list[Row] = []
    for line in [*page.read_text().splitlines(), ""]:
        if line.startswith("|"):
            table.append([cell.strip() for cell in line.strip("|").split("|")])
        elif table:
            yield [table[0], *table[2:]]
            table = []


def table(page: Path, head: str) -> list[Row]:
    """The rows of the table whose head has ``head`` in it, without the head."""
    for found in tables(page):
        if any(head in cell for cell in found[0]):
            return found[1:]
    raise ValueError(f"{page.name} has no table with the head {head!r}")


def number(cell: str) -> float:
    """The first number of a cell."""
    return float(cell.split()[0].replace(",", ""))


def told_ms(ms: float) -> str:
    return f"{ms / 1000:.3g} s" if ms >= 1000 else f"{ms:.3g} ms"


def failover(page: Path) -> Canvas:
    """How long nobody leads, on an axis of time whose steps are ten times as long."""
    rows = table(page, "what happens")
    left, right, height = 280, 640, 32
    picture = Canvas(
        760,
        70 + height * len(rows),
        "How long nobody leads: leaderq some ten milliseconds after a killed worker, kazoo's "
        "Election a session time-out, a Kafka group 45 s; after a lost host leaderq needs a "
        "session time-out, too.",
    )

    def at(ms: float) -> float:
        return left + (right - left) * math.log10(ms) / math.log10(60_000)

    for ms in (1, 10, 100, 1000, 10_000):
        picture.line((at(ms), 30), (at(ms), 40 + height * len(rows)), kind="rule")
        picture.text(at(ms), 22, told_ms(ms), "small quiet", "middle")
    for place, (what, who, timeout, _, half, most) in enumerate(rows):
        y = 42 + height * place
        ends = [number(cell) for cell in (half, most) if cell]
        kind = "good" if who == "leaderq" else "other"
        picture.text(left - 10, y + 9, what, "small", "end")
        picture.text(left - 10, y + 21, f"{who}, T = {timeout}", "small quiet", "end")
        picture.bar(left, y, at(ends[0]) - left, 18, kind)
        if len(ends) > 1:
            picture.line((at(ends[0]), y + 9), (at(ends[1]), y + 9))
            picture.line((at(ends[1]), y + 3), (at(ends[1]), y + 15))
        shown = told_ms(ends[0]) + (f", 99 % within {told_ms(ends[1])}" if len(ends) > 1 else "")
        picture.text(at(ends[-1]) + 6, y + 13, shown, "small")
    return picture


def drain(page: Path) -> Canvas:
    """Records a second, for both client libraries."""
    rows = [[row[0].replace("`", ""), *row[1:]] for row in table(page, "records a second")]
    title = (
        "Thousands of records drained a second, by leaderq and by bare loops, with both clients."
    )
    return _bars(rows, ("kafka-python", "confluent"), title, ours="leaderq")


def messages(page: Path) -> Canvas:
    """Messages a second beside Dyno-queues; rows that are no rates are left out."""
    rows = [row for row in table(page, "bare multis") if row[0].startswith(("push", "pop"))]
    title = "Thousands of messages a second: Dyno-queues V1 and V2 on Redis, leaderq on ZooKeeper."
    rows = [[what, *cells[:3]] for what, *cells in rows]
    return _bars(rows, ("V1", "V2", "leaderq"), title, ours="")


def _bars(rows: list[Row], heads: tuple[str, ...], title: str, *, ours: str) -> Canvas:
    """A group of bars for each row, one for each head; a row is ours by how it begins, or a bar by
    its head.
    """
    left, right, thin = 330, 700, 14
    height = 14 + thin * len(heads)
    most = max(number(cell) for row in rows for cell in row[1:] if cell)
    picture = Canvas(760, 24 + height * len(rows), title)
    picture.text(760 - 8, 14, "thousands a second", "small quiet", "end")
    for place, (what, *cells) in enumerate(rows):
        y = 20 + height * place
        picture.text(left - 92, y + 6 + height / 2 - 6, what, "small", "end")
        for line, (head, cell) in enumerate(zip(heads, cells, strict=True)):
            if cell:
                top = y + thin * line
                is_ours = what.startswith(ours) if ours else head == "leaderq"
                wide = (right - left) * number(cell) / most
                picture.text(left - 8, top + 11, head, "small quiet", "end")
                picture.bar(left, top + 1, wide, thin - 3, "good" if is_ours else "other")
                picture.text(left + max(wide, 1.5) + 6, top + 11, cell, "small")
    return picture
