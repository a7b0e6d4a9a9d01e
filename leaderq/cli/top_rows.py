"""Makes what ``leaderq top`` shows of a snapshot: rows that fit, and lines about one career.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Any

from leaderq.admin import careers as known
from leaderq.admin.careers import CareerState, Condition
from leaderq.admin.queue_states import QueueState
from leaderq.admin.snapshot import PageSnapshot
from leaderq.admin.text import Row, cut, harmless, local

# Each column, and how soon it is left out where the screen is narrow; 0: never.
CAREER_COLUMNS = {
    "Career": 0,
    "Condition": 0,
    "Leader": 0,
    "Term": 0,
    "Lag": 0,
    "Rate": 1,
    "Next tick": 2,
    "Margin": 3,
    "Stage": 4,
    "Since": 5,
    "Why": 6,
}
QUEUE_COLUMNS = {
    "Queue": 0,
    "Depth": 0,
    "Oldest due": 0,
    "Dead": 0,
    "Consumers": 1,
    "Kind": 2,
    "Remarks": 3,
}
_LONGEST = {"Why": 60, "Remarks": 60}
_LONGEST_CELL, _SHORTEST_CELL = 24, 12


class Sort(Enum):
    """The order of careers; the value is the word that the screen shows."""

    TROUBLE = "trouble"
    NAME = "name"
    LAG = "lag"
    NEWEST = "newest term"

    @property
    def next(self) -> Sort:
        """The order after this one; after the last, the first."""
        orders = list(Sort)
        return orders[(orders.index(self) + 1) % len(orders)]


_KEYS: Mapping[Sort, Callable[[CareerState], Any]] = {
    Sort.NAME: lambda one: one.career,
    Sort.LAG: lambda one: 1 if one.drain is None else -one.drain.report.lag,
    Sort.NEWEST: lambda one: -((one.view and one.view.began) or 0.0),
}


def chosen(snapshot: PageSnapshot, wanted: str, sort: Sort) -> list[tuple[Condition, CareerState]]:
    """The careers to show, in order; ``wanted`` is a filter."""
    found = known.in_order(snapshot.careers, wanted, snapshot.at_ms)
    return sorted(found, key=lambda each: _KEYS[sort](each[1])) if sort in _KEYS else found


def summary(snapshot: PageSnapshot, count: int) -> str:
    """One line about the whole snapshot; ``count`` is how many careers are shown."""
    tones = [known.condition_of(one, snapshot.at_ms).value[1] for one in snapshot.careers]
    bad, warned = tones.count("bad"), tones.count("warn")
    parts = [f"{len(tones)} careers"]
    parts += [f"{bad} in trouble"] if bad else []
    parts += [f"{warned} to look at"] if warned else []
    parts += [f"{count} shown"] if count < len(tones) else []
    at = (local(snapshot.at_ms) or "")[11:] if snapshot.at_ms else "reading..."
    problem = f" | not read since: {harmless(snapshot.problem)}" if snapshot.problem else ""
    return f"{', '.join(parts)} | {at}{problem}"


def queues_in_order(queues: Sequence[QueueState]) -> list[QueueState]:
    """The queues in order: those with most dead letters first, then the deepest."""
    return sorted(queues, key=lambda one: (-one.dead, -one.depth, one.path))


def fitting(
    columns: Mapping[str, int], rows: Sequence[Row], width: int
) -> tuple[list[str], list[list[str]]]:
    """Return the columns that fit into ``width``, and their cells. Each column has two blanks
    around it. If even the columns that are never left out do not fit, the widest one is cut.
    """
    cells = {
        name: [cut(_plain(row[name]), _LONGEST.get(name, _LONGEST_CELL)) for row in rows]
        for name in columns
    }
    widths = {name: max(map(len, (name, *each))) + 2 for name, each in cells.items()}
    spare = sorted(filter(columns.get, columns), key=lambda name: columns[name])
    while spare and sum(widths.values()) > width:
        del widths[spare.pop()]
    while (excess := sum(widths.values()) - width) > 0:
        widest = max(widths, key=lambda name: widths[name])
        most = max(widths[widest] - 2 - excess, _SHORTEST_CELL)
        if most + 2 >= widths[widest]:
            break
        cells[widest], widths[widest] = [cut(one, most) for one in cells[widest]], most + 2
    return [*widths], [list(each) for each in zip(*(cells[name] for name in widths), strict=True)]


def _plain(value: Any) -> str:
    return "-" if value is None or value == "" else harmless(str(value))


def last_events(snapshot: PageSnapshot, most: int) -> list[str]:
    """The last events, the newest first: terms that began or ended, and what operators asked for;
    at most ``most``.
    """
    found: list[tuple[int, str]] = []
    for state in snapshot.careers:
        if (view := state.view) is None:
            continue
        for one in view.history:
            if one.began is not None:
                began = f"{view.career}: {known.named(one)} won term {one.number}"
                found.append((int(one.began * 1000), began))
            if one.ended is not None:
                ended = f"{view.career}: term {one.number} ended, {known.how_it_ended(one)}"
                found.append((int(one.ended * 1000), ended))
        for each in known.requests_of(view):
            asked = f"{view.career}: {each.by} asked for {each.what}{each.because}"
            found.append((each.at_ms, asked))
    found.sort(reverse=True)
    return [harmless(f"{(local(at_ms) or '')[11:]} {text}") for at_ms, text in found[:most]]


def career_lines(state: CareerState, now_ms: int) -> Iterator[str]:
    """One career in full."""
    view = state.view
    yield harmless(f"{state.career}: {known.condition_of(state, now_ms).value[0]}")
    yield from (harmless(f"  {why}") for why in known.reasons(state, now_ms))
    if view is None:
        return
    facts = known.career_facts(state, view, now_ms)
    yield from (f"{name}: {_plain(value)}" for name, value in facts.items() if value is not None)
    sections = {
        "candidates": known.candidate_rows(view, now_ms),
        "schedules": [known.schedule_row(one, now_ms) for one in state.schedules],
        "terms": known.term_rows(view, now_ms),
        "asked for by operators": known.request_rows(view),
    }
    for title, rows in sections.items():
        yield from ("", title) if rows else ()
        for row in rows:
            said = (f"{name.lower()} {_plain(one)}" for name, one in row.items() if one)
            yield f"  {', '.join(said)}"


def may_lead_next(state: CareerState) -> str:
    """The candidate that is next in the line; ``""`` if there is none."""
    roles = [] if state.view is None else known.members_of(state.view)
    return next((one.candidate for _, role, one in roles if role == "next"), "")
