"""What ``leaderq top`` shows of a snapshot: rows, and lines about one career. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from fnmatch import fnmatchcase

from leaderq.admin import careers as known
from leaderq.admin.careers import CareerState
from leaderq.admin.queue_states import QueueState
from leaderq.admin.text import duration, harmless, local
from leaderq.dashboard.snapshot import PageSnapshot

CAREER_COLUMNS = (
    *("CAREER", "STATE", "LEADER", "TERM", "LAG"),
    *("RATE", "NEXT TICK", "STAGE", "MARGIN", "SINCE", "WHY"),
)
QUEUE_COLUMNS = ("QUEUE", "DEPTH", "OLDEST", "DEAD", "CONSUMERS", "KIND")
_SPARE = {  # which are left out first, where the screen is narrow
    "WHY": 6,
    "SINCE": 5,
    "STAGE": 4,
    "MARGIN": 3,
    "NEXT TICK": 2,
    "RATE": 1,
    "KIND": 2,
    "CONSUMERS": 1,
}
_LONGEST_CELL, _LONGEST_WHY = 24, 60
_NO_LAG = -1

Row = tuple[str, ...]


class Sort(Enum):
    """The order of careers; the value is the word shown."""

    TROUBLE = "trouble"
    NAME = "name"
    LAG = "lag"
    NEWEST = "newest term"

    @property
    def next(self) -> Sort:
        """The one after it, in a circle."""
        orders = list(Sort)
        return orders[(orders.index(self) + 1) % len(orders)]


def chosen(snapshot: PageSnapshot, wanted: str, sort: Sort) -> list[CareerState]:
    """The careers to show, in order. ``wanted``: a part or pattern of a name, or of a condition's
    word, such as *held up*.
    """
    text, now_ms = wanted.strip().lower(), snapshot.at_ms
    pattern = text if set(text) & set("*?[") else f"*{text}*"
    found = [
        one
        for one in snapshot.careers
        if fnmatchcase(one.career.lower(), pattern)
        or fnmatchcase(known.condition_of(one, now_ms).value[0], pattern)
    ]
    found.sort(key=lambda one: one.career)
    if sort is Sort.TROUBLE:
        found.sort(key=lambda one: known.condition_of(one, now_ms).rank)
    elif sort is Sort.LAG:
        found.sort(key=lambda one: _NO_LAG if one.drain is None else one.drain.report.lag)
        found.reverse()
    elif sort is Sort.NEWEST:
        found.sort(key=lambda one: -((one.view and one.view.began) or 0.0))
    return found


def summary(snapshot: PageSnapshot, shown: int) -> str:
    """One line about all of it."""
    tones = [_tone(one, snapshot.at_ms) for one in snapshot.careers]
    bad, warned = tones.count("bad"), tones.count("warn")
    parts = [f"{len(tones)} careers"]
    parts += [f"{bad} in trouble"] if bad else []
    parts += [f"{warned} to look at"] if warned else []
    parts += [f"{shown} shown"] if shown < len(tones) else []
    at = (local(snapshot.at_ms) or "")[11:] if snapshot.at_ms else "reading..."
    problem = f" | not read since: {snapshot.problem}" if snapshot.problem else ""
    return f"{', '.join(parts)} | {at}{problem}"


def career_row(state: CareerState, now_ms: int) -> Row:
    """The cells of :data:`CAREER_COLUMNS`."""
    view, drain, tick = state.view, state.drain, state.next_tick
    why = "; ".join(known.reasons(state, now_ms))
    word = known.condition_of(state, now_ms).value[0]
    if view is None:
        return (_cut(state.career), word, *"-" * 8, _cut(why, _LONGEST_WHY))
    is_fresh = drain is not None and drain.fresh
    left_s = drain.report.lease_left_s if drain is not None and is_fresh else None
    changed = view.began if view.leader else view.ended
    return (
        _cut(state.career),
        word,
        _cut(view.leader or "-"),
        str(view.term or "-"),
        drain.lag(drain.report.lag) if drain else "-",
        (known.rate_of(drain.report) if drain and is_fresh else None) or "-",
        known.due_in(tick["at_ms"], now_ms) if tick else "-",
        view.stage or "-",
        "-" if left_s is None else f"{left_s:.1f} s",
        "-" if changed is None else duration(now_ms / 1000 - changed),
        _cut(why, _LONGEST_WHY) or "-",
    )


def queue_row(queue: QueueState, now_ms: int) -> Row:
    """The cells of :data:`QUEUE_COLUMNS`."""
    listing = queue.listing
    oldest = "-"
    if listing is not None and listing.oldest_ms is not None:
        oldest = duration((now_ms - listing.oldest_ms) / 1000)
    elif queue.too_many:
        oldest = "too many"
    kind = listing.kind if listing else None
    paused = " (paused)" if queue.is_paused else ""
    depth = f"{queue.depth}{paused}"
    kind = "dyno" if queue.is_dyno else kind or "-"
    return (_cut(queue.path), depth, oldest, str(queue.dead), str(queue.consumers), kind)


def queues_in_order(queues: Sequence[QueueState]) -> list[QueueState]:
    """Those with dead letters first, then the deepest."""
    return sorted(queues, key=lambda one: (-one.dead, -one.depth, one.path))


def fitting(columns: Sequence[str], rows: Sequence[Row], width: int) -> list[int]:
    """The indices of the columns that fit into ``width``, each with two blanks around it."""
    shown = list(range(len(columns)))
    widths = [max(map(len, cells)) + 2 for cells in zip(columns, *rows, strict=True)]
    while sum(widths[at] for at in shown) > width:
        last = max(shown, key=lambda at: _SPARE.get(columns[at], 0))
        if columns[last] not in _SPARE:
            break
        shown.remove(last)
    return shown


def last_events(snapshot: PageSnapshot, most: int) -> list[str]:
    """What has happened last, the newest first: terms that began and ended, what operators asked
    for.
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
            found.append((each.at_ms, harmless(asked)))
    found.sort(reverse=True)
    return [f"{(local(at_ms) or '')[11:]} {text}" for at_ms, text in found[:most]]


def career_lines(state: CareerState, now_ms: int) -> list[str]:
    """One career in full."""
    view, word = state.view, known.condition_of(state, now_ms)
    lines = [
        f"{state.career}: {word.value[0]}",
        *(f"  {why}" for why in known.reasons(state, now_ms)),
    ]
    if view is None:
        return lines
    if view.leader:
        lines.append(f"term {view.term}, {view.stage}, led by {known.named(view.members[0])}")
    if state.drain is not None:
        report, said = state.drain.report, state.drain
        rate, until = known.rate_of(report) or "unknown rate", known.catch_up(report)
        lines.append(f"lag {said.lag(report.lag)}, {rate}, {until}")
        left_s = "" if report.lease_left_s is None else f"{report.lease_left_s:.1f} s of the lease"
        in_hand = "" if report.in_hand is None else f"{report.in_hand} records in hand"
        counts = [f"{report.skipped} skipped", f"{report.buried} set aside"]
        lines.append(", ".join(filter(None, [left_s, in_hand, *counts])))
    lines += ["", "candidates"]
    for turn, role, one in known.members_of(view):
        version = f", version {one.version}" if one.version else ""
        lines.append(f"  {turn or '-'}  {known.named(one)}: {role}{version}")
    if state.schedules:
        lines += ["", "schedules"]
    for each in state.schedules:
        due = each.record.next if each.record is not None else None
        when = known.due_in(due, now_ms) if due is not None else each.problem or "no tick to come"
        lines.append(f"  {each.name}: {when}{' (paused)' if each.wishes.paused else ''}")
    lines += ["", "terms"]
    for at, term in enumerate(view.history):
        leads = at == 0 and view.leader is not None
        end = "leads now" if leads else known.how_it_ended(term)
        began = local(int(term.began * 1000)) if term.began is not None else "?"
        lines.append(f"  {term.number}  {known.named(term)}  {began}  {end}")
    asked = known.requests_of(view)
    lines += ["", "asked by operators"] if asked else []
    for request in asked:
        said_at = local(request.at_ms)
        lines.append(harmless(f"  {said_at}  {request.by}: {request.what}{request.because}"))
    return lines


def style_of(state: CareerState, now_ms: int) -> str:
    """How its word is drawn where there are colours; the word says it without."""
    styles = {"bad": "bold red", "warn": "yellow", "good": "green", "faint": "dim"}
    return styles[_tone(state, now_ms)]


def _tone(state: CareerState, now_ms: int) -> str:
    return known.condition_of(state, now_ms).value[1]


def may_lead_next(state: CareerState) -> str:
    """The candidate that is next in the line; ``""`` if there is none."""
    roles = [] if state.view is None else known.members_of(state.view)
    return next((one.candidate for _, role, one in roles if role == "next"), "")


def _cut(text: str, most: int = _LONGEST_CELL) -> str:
    text = harmless(text)
    return text if len(text) <= most else text[: most - 1] + "…"
