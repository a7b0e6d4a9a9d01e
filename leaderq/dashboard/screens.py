"""Draws the screens: from a snapshot to HTML (pure).

A screen is a list of parts, each with an id; the page's script replaces the parts that have
changed. All viewers of a screen get the same HTML, so it holds nothing that belongs to one of them:
an action is a link to a form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import urlencode

from leaderq.admin import careers as told
from leaderq.admin.actions import Action, Deed
from leaderq.admin.careers import Condition
from leaderq.admin.queue_states import SHOWN_ITEMS, SHOWN_LETTERS, QueueState, queue_row
from leaderq.admin.snapshot import PageSnapshot
from leaderq.admin.text import Row, Toned, brief, cut, duration, is_like, local
from leaderq.dashboard.markup import Markup, joined, tag
from leaderq.dashboard.plots import Stretch, line_plot, time_axis
from leaderq.election import TermRecord, View
from leaderq.queues.admin import Browsed, DeadItem
from leaderq.schedules.operating import ScheduleView

_COLUMNS = (
    *("Career", "Condition", "Leader", "Term", "Stage", "Since", "Lag", "Catch-up"),
    *("Next tick", "Why"),
)


class ScreenKind(Enum):
    """A kind of screen; its value is the path of its address."""

    CAREERS = "/"
    CAREER = "/career"
    QUEUES = "/queues"
    QUEUE = "/queue"
    SCHEDULES = "/schedules"


@dataclass(frozen=True)
class PageScreen:
    """The screen that a viewer looks at. ``subject`` is the career or the queue; ``only`` selects
    some of many, as :func:`~leaderq.admin.text.is_like` does.
    """

    kind: ScreenKind
    subject: str = ""
    only: str = ""

    @property
    def address(self) -> str:
        """The address of the screen, relative to any other address of the page."""
        asked = {"of": self.subject, "only": self.only}
        said = urlencode({name: value for name, value in asked.items() if value})
        return f".{self.kind.value}?{said}" if said else f".{self.kind.value}"

    @property
    def queue(self) -> str | None:
        """The queue whose contents this screen shows; ``None`` if it shows none."""
        return self.subject if self.kind is ScreenKind.QUEUE else None

    @property
    def title(self) -> str:
        """The heading of the screen, and its name in the menu."""
        return self.subject or self.kind.name.capitalize()


@dataclass(frozen=True)
class ScreenOptions:
    """``actions``: offer actions; ``payloads``: show what items hold; ``every_s``: how often the
    page is read.
    """

    actions: bool = False
    payloads: bool = False
    every_s: float = 2.0


class _Look(NamedTuple):
    """All that a screen is drawn from."""

    screen: PageScreen
    snapshot: PageSnapshot
    options: ScreenOptions
    now_ms: int


def is_known(screen: PageScreen, snapshot: PageSnapshot) -> bool:
    """Whether the career or queue that the screen is about is in ``snapshot``."""
    if not screen.subject:
        return True
    found = snapshot.queue if screen.kind is ScreenKind.QUEUE else snapshot.career
    return found(screen.subject) is not None


def draw(screen: PageScreen, snapshot: PageSnapshot, options: ScreenOptions, now_ms: int) -> Markup:
    """The parts of the screen."""
    parts = _PARTS[screen.kind](_Look(screen, snapshot, options, now_ms))
    return joined(_news(snapshot, options, now_ms), parts)


def _news(snapshot: PageSnapshot, options: ScreenOptions, now_ms: int) -> Markup:
    if snapshot.problem is None:
        pace = f"read {_clock(snapshot.at_ms)}, every {options.every_s:g} s while somebody looks"
        return tag("p", pace, id="news", class_="faint")
    since = snapshot.failing_since_ms or now_ms
    failing = f"ZooKeeper cannot be read since {_clock(since)} ({_ago(since, now_ms)})"
    old = f"what is shown is of {_clock(snapshot.at_ms)}" if snapshot.at_ms else "nothing is known"
    said = f"{failing}: {snapshot.problem}; {old}. It is tried again every {options.every_s:g} s."
    return tag("p", said, id="news", class_="alert")


def _careers(look: _Look) -> Iterable[Markup]:
    screen, snapshot, _, now_ms = look
    found = told.in_order(snapshot.careers, screen.only, now_ms)
    words = [word for word, _ in found]
    counts = [
        tag("span", f"{words.count(word)} {word.value[0]}", class_=f"count {word.value[1]}")
        for word in Condition
        if word in words
    ]
    yield tag("p", counts, id="counts", class_="counts")
    rows = [_career_row(told.career_row(word, one, now_ms)) for word, one in found]
    yield _table("careers", "Careers, those in trouble first", rows, "No career is known.")


def _career_row(row: Row) -> Row:
    link = _link(PageScreen(ScreenKind.CAREER, row["Career"]), row["Career"])
    return {name: row[name] for name in _COLUMNS} | {
        "Career": link,
        "Condition": _word(row["Condition"]),
    }


def _career(look: _Look) -> Iterable[Markup]:
    screen, snapshot, options, now_ms = look
    state = snapshot.career(screen.subject)
    if state is None:
        yield tag("p", "Nobody has ever stood for a career of that name.", id="none")
        return
    view, condition = state.view, Toned(*told.condition_of(state, now_ms).value)
    reasons = [tag("li", one) for one in told.reasons(state, now_ms)]
    head = [_word(condition), reasons and tag("ul", reasons, class_="reasons")]
    yield tag("div", head, id="how", class_="how")
    if view is None:
        return
    yield _facts(told.career_facts(state, view, now_ms))
    if options.actions:
        yield _offers(_actions_on(view))
    yield _section("terms", "Terms", _terms(view, now_ms))
    if state.drain is not None:
        lags = snapshot.lags(screen.subject)
        lag = line_plot(lags, now_ms, "the lag over time", options.every_s)
        yield _section("lag", "Lag while somebody looked", lag)
    candidates = told.candidate_rows(view, now_ms)
    yield _table("candidates", "Candidates", candidates, "No candidate stands.")
    if state.schedules:
        rows = [_schedule_row(state.career, one, options, now_ms) for one in state.schedules]
        yield _table("ticks", "Schedules", [_without_first(row) for row in rows])
    nothing = "Nobody who gave a name has asked for anything."
    yield _table("asked", "What operators asked for", told.request_rows(view), nothing)


def _terms(view: View, now_ms: int) -> list[Markup]:
    terms = [one for one in reversed(view.history) if one.began is not None]
    if not terms:
        return [tag("p", "Nobody has led yet.", class_="faint")]
    now = now_ms / 1000
    stretches = [_stretch(one, after, view, now) for one, after in pairwise([*terms, None]) if one]
    describes = f"terms {terms[0].number} to {terms[-1].number}; the table below has all"
    key = [tag("span", tag("i", class_=f"key {kind}"), word) for kind, word in _KINDS.items()]
    axis = time_axis(stretches, now, describes)
    past = _table("past", "The last terms", told.term_rows(view, now_ms))
    return [axis, tag("p", key, class_="keys"), past]


def _stretch(term: TermRecord, after: TermRecord | None, view: View, now: float) -> Stretch:
    kind, ended, end = "bad" if term.error else "clean", term.ended, told.how_it_ended(term)
    if told.is_present(term, view):
        kind, ended, end = "leads", now, "leads now"
    elif ended is None:
        kind, ended = "unclean", after.began if after else term.began
    began, number = term.began or 0.0, str(term.number)
    title = f"term {number} of {term.candidate}: {end}"
    return Stretch(began, ended or began, number, kind, title)


def _actions_on(view: View) -> Iterator[Action]:
    yield Action(Deed.RESUME if view.paused else Deed.PAUSE, view.career)
    if view.leader is not None and len(view.candidates) > 1:
        yield Action(Deed.STEP_DOWN, view.career)
        for candidate in dict.fromkeys(view.candidates[1:]):
            yield Action(Deed.TRANSFER, view.career, candidate)


def _queues(look: _Look) -> Iterable[Markup]:
    screen, snapshot, _, now_ms = look
    found = [one for one in snapshot.queues if is_like(screen.only, one.path)]
    found.sort(key=lambda one: (not one.dead, one.path))
    nothing = "No queue is known; name some with --queue PATH, or --queue PATH/ for those below."
    links = [_link(PageScreen(ScreenKind.QUEUE, one.path), one.path) for one in found]
    rows = [queue_row(one, now_ms) for one in found]
    rows = [{**row, "Queue": link} for row, link in zip(rows, links, strict=True)]
    yield _table("queues", "Queues, those with dead letters first", rows, nothing)


def _queue(look: _Look) -> Iterable[Markup]:
    screen, snapshot, options, now_ms = look
    state, contents = snapshot.queue(screen.subject), snapshot.contents.get(screen.subject)
    if state is None:
        yield tag("p", "There is no such queue among those that are read.", id="none")
        return
    yield _facts(_without_first(queue_row(state, now_ms)))
    depths = snapshot.depths(screen.subject)
    plot = line_plot(depths, now_ms, "the depth over time", options.every_s)
    yield _section("depth", "Depth while somebody looked", plot)
    if contents is None:
        return
    if contents.problem:
        yield tag("p", contents.problem, id="problem", class_="alert")
    rows = [_item_row(one, options, now_ms) for one in contents.items]
    few = f", the first {SHOWN_ITEMS}" if state.depth > SHOWN_ITEMS else ""
    yield _table("items", f"Items that go next{few}", rows, "No item is known.")
    if options.actions and contents.letters:
        yield _offers([Action(Deed.REDRIVE_ALL, state.path)])
    rows = [_letter_row(one, state, options) for one in contents.letters]
    few = f", the first {SHOWN_LETTERS}" if state.dead > SHOWN_LETTERS else ""
    yield _table("dead", f"Dead letters{few}", rows, "There are no dead letters.")


def _item_row(one: Browsed, options: ScreenOptions, now_ms: int) -> Row:
    return {
        "Name": f"{getattr(one, 'said', {}).get('id') or ''} {one.name}".strip(),
        "Waits": _ago(one.enqueued_ms, now_ms),
        "Attempt": one.attempt + 1,
        "Bytes": None if one.items is None else sum(map(len, one.items)),
        "Item": _payload(one, options),
    }


def _letter_row(one: DeadItem, state: QueueState, options: ScreenOptions) -> Row:
    note = one.note
    row: Row = {"Name": one.name, "Died": local(one.died_ms), "Attempts": note.attempt}
    row |= {"Reason": note.reason, "Error": note.error and cut(" ".join(note.error.split()), 200)}
    row["Item"] = _payload(one.found, options)
    return row | _do(options, Action(Deed.REDRIVE, state.path, one.name))


def _payload(one: Browsed, options: ScreenOptions) -> Any:
    if one.items is None:
        return tag("span", f"corrupt: {cut(one.problem or '', 100)}", class_="bad")
    if not options.payloads:
        return tag("span", "hidden", class_="faint")
    more = f" (and {len(one.items) - 1} more)" if len(one.items) > 1 else ""
    return tag("code", brief(one.items[0]) + more) if one.items else None


def _schedules(look: _Look) -> Iterable[Markup]:
    screen, snapshot, options, now_ms = look
    found = [
        (not told.is_late(one, now_ms), state.career, one)
        for state in snapshot.careers
        for one in state.schedules
        if is_like(screen.only, f"{state.career} {one.name}")
    ]
    found.sort(key=lambda each: (each[0], each[1], each[2].name))
    rows = [_schedule_row(career, one, options, now_ms) for _, career, one in found]
    nothing = "No leader has run a schedule."
    yield _table("schedules", "Schedules, those that are late first", rows, nothing)


def _schedule_row(career: str, one: ScheduleView, options: ScreenOptions, now_ms: int) -> Row:
    link = _link(PageScreen(ScreenKind.CAREER, career), career, one.name)
    row = {"Career": link, **told.schedule_row(one, now_ms)}
    return row | _do(options, Action(Deed.RUN_NOW, career, one.name))


def _section(id: str, title: str, *content: Any) -> Markup:
    heading = tag("h2", title, id=f"{id}-title")
    return tag("section", heading, *content, id=id, aria_labelledby=f"{id}-title")


def _table(id: str, caption: str, rows: Sequence[Row], nothing: str = "") -> Markup:
    """A table; the keys of its rows are the headings. Without rows, the sentence ``nothing``."""
    if not rows:
        return _section(id, caption, tag("p", nothing, class_="faint"))
    cells = ([tag("td", _shown(one), data_is=name) for name, one in row.items()] for row in rows)
    head = tag("thead", tag("tr", [tag("th", name, scope="col") for name in rows[0]]))
    body = tag("tbody", [tag("tr", some) for some in cells])
    return tag("div", tag("table", tag("caption", caption), head, body), id=id, class_="wide")


def _facts(facts: Row) -> Markup:
    known = {name: one for name, one in facts.items() if one is not None and one != ""}
    shown = [tag("div", tag("dt", name), tag("dd", _shown(one))) for name, one in known.items()]
    return tag("dl", shown, id="facts", class_="facts")


def _without_first(row: Row) -> Row:
    return dict(list(row.items())[1:])


def _shown(value: Any) -> Any:
    if isinstance(value, Toned) and value.tone:
        return tag("span", value, class_=value.tone)
    return tag("span", "-", class_="faint none") if value is None or value == "" else value


def _link(screen: PageScreen, text: str, beside: str = "") -> Markup:
    id = "-".join(f"to-{screen.address}-{beside}".split())
    return tag("a", text, href=screen.address, id=id)


def _do(options: ScreenOptions, action: Action) -> Row:
    return {"Do": _offer(action)} if options.actions else {}


def _offers(actions: Iterable[Action]) -> Markup:
    return tag("p", [_offer(one) for one in actions], id="actions", class_="actions")


def _offer(action: Action) -> Markup:
    place = {"href": action.address, "id": f"do-{action.address}", "class_": "button"}
    return tag("a", action.label, aria_label=f"{action.label}: {action.sentence}", **place)


def _word(word: Toned) -> Markup:
    return tag("span", word, class_=f"word {word.tone}")


def _clock(at_ms: int) -> str:
    return (local(at_ms) or "")[-8:]


def _ago(at_ms: int, now_ms: int) -> str:
    return duration((now_ms - at_ms) / 1000)


# fmt: off
_KINDS = {
    "leads": "leads now", "clean": "ended well", "bad": "ended with an error",
    "unclean": "killed or cut off, its end is not known", "gap": "nobody led",
}
_PARTS = {
    ScreenKind.CAREERS: _careers, ScreenKind.CAREER: _career,
    ScreenKind.QUEUES: _queues, ScreenKind.QUEUE: _queue, ScreenKind.SCHEDULES: _schedules,
}
# fmt: on
