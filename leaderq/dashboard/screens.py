"""The screens: from a snapshot to HTML (pure).

A screen is a list of parts, each with an id; the page's script replaces those that have changed.
Everybody who looks at a screen gets the same, so nothing in it belongs to a visitor: what may be
done is a link to a form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from itertools import pairwise
from typing import Any, NamedTuple
from urllib.parse import urlencode

from leaderq.admin import careers as told
from leaderq.admin.careers import CareerState, Condition, condition_of, is_late
from leaderq.admin.queue_states import SHOWN_ITEMS, SHOWN_LETTERS, Listing, QueueState
from leaderq.admin.text import brief, cut, duration, local
from leaderq.dashboard.actions import Action, Deed
from leaderq.dashboard.markup import Markup, joined, tag
from leaderq.dashboard.plots import Stretch, briefly, line_plot, time_axis
from leaderq.dashboard.snapshot import PageSnapshot
from leaderq.election import Member, TermRecord, View
from leaderq.queues.admin import Browsed, DeadItem
from leaderq.schedules.operating import ScheduleView
from leaderq.schedules.record import PassedOver, TickGap, TickRun

Row = dict[str, Any]
_UNFIT = (PassedOver.MISSED, PassedOver.LATE, PassedOver.TOO_OLD, PassedOver.TOO_MANY)


class ScreenKind(Enum):
    """The value is the path of the screen's address."""

    CAREERS = "/"
    CAREER = "/career"
    QUEUES = "/queues"
    QUEUE = "/queue"
    SCHEDULES = "/schedules"


@dataclass(frozen=True)
class PageScreen:
    """What somebody looks at: ``subject`` is the career or queue; ``only``: names that are shown,
    as a part of the name or a pattern (``team-*``).
    """

    kind: ScreenKind
    subject: str = ""
    only: str = ""

    @property
    def address(self) -> str:
        """Its address below the page's root."""
        asked = {"of": self.subject, "only": self.only}
        said = urlencode({name: value for name, value in asked.items() if value})
        return f"{self.kind.value}?{said}" if said else self.kind.value

    @property
    def queue(self) -> str | None:
        """The queue whose contents are shown."""
        return self.subject if self.kind is ScreenKind.QUEUE else None

    @property
    def title(self) -> str:
        """Its heading, and its name in the menu."""
        return self.subject or self.kind.name.capitalize()

    def shows(self, name: str) -> bool:
        """Whether the filter lets this name through."""
        return self.only in name or fnmatchcase(name, self.only)


@dataclass(frozen=True)
class ScreenOptions:
    """``actions``: offer them; ``payloads``: show what items hold; ``every_s`` is the pace."""

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
    """Whether there is what the screen is about, as far as that was ever read."""
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
    known = [one for one in snapshot.careers if screen.shows(one.career)]
    found = [(condition_of(one, now_ms), one) for one in known]
    found.sort(key=lambda each: (each[0].rank, each[1].career))
    words = [word for word, _ in found]
    counts = [
        tag("span", f"{words.count(word)} {word.value[0]}", class_=f"count {word.value[1]}")
        for word in Condition
        if word in words
    ]
    yield tag("p", counts, id="counts", class_="counts")
    rows = [_career_row(word, one, now_ms) for word, one in found]
    yield _table("careers", "Careers, those in trouble first", rows, "No career is known.")


def _career_row(word: Condition, state: CareerState, now_ms: int) -> Row:
    view, drain, tick = state.view, state.drain, state.next_tick
    led = view and (view.began if view.leader else view.ended)
    return {
        "Career": _link(PageScreen(ScreenKind.CAREER, state.career), state.career),
        "Condition": _word(word),
        "Leader": view and view.leader,
        "Term": (view and view.term) or None,
        "Stage": view and view.stage,
        "Since": led and duration(now_ms / 1000 - led),
        "Lag": drain and drain.lag(drain.report.lag),
        "Catch-up": drain and told.catch_up(drain.report),
        "Next tick": tick and f"{tick['schedule']} {told.due_in(tick['at_ms'], now_ms)}",
        "Why": cut("; ".join(told.reasons(state, now_ms)), 200),
    }


def _career(look: _Look) -> Iterable[Markup]:
    screen, snapshot, options, now_ms = look
    state = snapshot.career(screen.subject)
    if state is None:
        yield tag("p", "Nobody has ever stood for a career of that name.", id="none")
        return
    view, now = state.view, now_ms / 1000
    reasons = [tag("li", one) for one in told.reasons(state, now_ms)]
    head = [_word(condition_of(state, now_ms)), reasons and tag("ul", reasons, class_="reasons")]
    yield tag("div", head, id="how", class_="how")
    if view is None:
        return
    yield _facts(_career_facts(state, view, now))
    if options.actions:
        yield _offers(_actions_on(view))
    yield _section("terms", "Terms", _terms(view, now))
    if state.drain is not None:
        lags = snapshot.lags(screen.subject)
        lag = line_plot(lags, now_ms, "the lag over time")
        yield _section("lag", "Lag while somebody looked", lag)
    rows: list[Row] = [
        {
            "Turn": turn,
            "Candidate": one.candidate,
            "Role": role,
            "Host": one.host,
            "Process": one.pid,
            "Version": one.version,
            "Stands again": told.until(one.stands_again, now),
        }
        for turn, role, one in told.members_of(view)
    ]
    yield _table("candidates", "Candidates", rows, "No candidate stands.")
    if state.schedules:
        rows = [_schedule_row(state.career, one, options, now_ms) for one in state.schedules]
        yield _table("ticks", "Schedules", [_without_first(row) for row in rows])
    asked = [
        {"When": local(one.at_ms), "Who": one.by, "Asked for": one.what, "Because": one.why}
        for one in told.requests_of(view)
    ]
    nothing = "Nobody who gave a name has asked for anything."
    yield _table("asked", "What operators asked for", asked, nothing)


def _member_row(turn: int | None, role: str, one: Member, now: float) -> Row:
    row: Row = {"Turn": turn, "Candidate": one.candidate, "Role": role, "Host": one.host}
    row |= {"Process": one.pid, "Version": one.version}
    return row | {"Stands again": told.until(one.stands_again, now)}


def _career_facts(state: CareerState, view: View, now: float) -> Row:
    leader = told.named(view.members[0]) if view.leader else "nobody"
    facts: Row = {"Leader": leader, "Term": view.term or "none yet"}
    if view.leader:
        facts |= {"Stage": view.stage, "Led for": view.began and duration(now - view.began)}
    if (drain := state.drain) is None:
        return facts
    said, left = drain.report, drain.report.lease_left_s
    return facts | {
        "Lag": drain.lag(said.lag),
        "Catches up": told.catch_up(said),
        "Rate": told.rate_of(said),
        "Records in hand": said.in_hand,
        "Lease left": None if left is None else f"{left:.1f} s, when it reported",
        "Set aside": f"{said.buried} dead letters, {said.skipped} skipped",
        "Reported": f"{duration(drain.age_s)} ago",
    }


def _terms(view: View, now: float) -> list[Markup]:
    terms = [one for one in reversed(view.history) if one.began is not None]
    if not terms:
        return [tag("p", "Nobody has led yet.", class_="faint")]
    stretches = [_stretch(one, after, view, now) for one, after in pairwise([*terms, None]) if one]
    describes = f"terms {terms[0].number} to {terms[-1].number}; the table below has all"
    key = [tag("span", tag("i", class_=f"key {kind}"), word) for kind, word in _KINDS.items()]
    gaps = {b.label: max(0.0, b.began - a.ended) for a, b in pairwise(stretches)}
    rows = [_term_row(one, view, now, gaps.get(str(one.number))) for one in view.history]
    axis = time_axis(stretches, now, describes)
    return [axis, tag("p", key, class_="keys"), _table("past", "The last terms", rows)]


def _is_present(term: TermRecord, view: View) -> bool:
    return term.number == view.term and view.leader is not None


def _stretch(term: TermRecord, after: TermRecord | None, view: View, now: float) -> Stretch:
    kind, ended, end = "bad" if term.error else "clean", term.ended, told.how_it_ended(term)
    if _is_present(term, view):
        kind, ended, end = "leads", now, "leads now"
    elif ended is None:
        kind, ended = "unclean", after.began if after else term.began
    began, number = term.began or 0.0, str(term.number)
    title = f"term {number} of {term.candidate}: {end}"
    return Stretch(began, ended or began, number, kind, title)


def _term_row(term: TermRecord, view: View, now: float, gap: float | None) -> Row:
    present = _is_present(term, view)
    ended = now if present else term.ended
    grade = "good" if present else "bad" if told.is_bad_end(term) else ""
    return {
        "Term": term.number,
        "Leader": told.named(term),
        "Version": term.version,
        "Began": term.began and local(int(term.began * 1000)),
        "Lasted": ended and term.began and duration(ended - term.began),
        "Nobody led before": gap if gap is None else briefly(gap),
        "End": tag("span", "leads now" if present else told.how_it_ended(term), class_=grade),
    }


def _actions_on(view: View) -> Iterator[Action]:
    yield Action(Deed.RESUME if view.paused else Deed.PAUSE, view.career)
    if view.leader is not None and len(view.candidates) > 1:
        yield Action(Deed.STEP_DOWN, view.career)
        for candidate in dict.fromkeys(view.candidates[1:]):
            yield Action(Deed.TRANSFER, view.career, candidate)


def _queues(look: _Look) -> Iterable[Markup]:
    screen, snapshot, _, now_ms = look
    found = [one for one in snapshot.queues if screen.shows(one.path)]
    found.sort(key=lambda one: (not one.dead, one.path))
    nothing = "No queue is known; name some with --queue PATH, or --queue PATH/ for those below."
    rows = [_queue_row(one, now_ms) for one in found]
    yield _table("queues", "Queues, those with dead letters first", rows, nothing)


def _queue_row(one: QueueState, now_ms: int) -> Row:
    listing = one.listing or Listing(now_ms, None)
    said = ["paused"] if one.is_paused else []
    said += ["nobody consumes it"] if one.depth and not one.consumers else []
    said += ["too many to be listed"] if one.too_many else []
    said += [listing.problem] if listing.problem else []
    return {
        "Queue": _link(PageScreen(ScreenKind.QUEUE, one.path), one.path),
        "Kind": listing.kind,
        "Depth": f"{one.depth:,}",
        "Due": listing.due,
        "Held": one.held,
        "Oldest due": listing.oldest_ms and _ago(listing.oldest_ms, now_ms),
        "Dead": tag("span", one.dead, class_="bad") if one.dead else 0,
        "Consumers": one.consumers,
        "Remarks": "; ".join(said),
    }


def _queue(look: _Look) -> Iterable[Markup]:
    screen, snapshot, options, now_ms = look
    state, contents = snapshot.queue(screen.subject), snapshot.contents.get(screen.subject)
    if state is None:
        yield tag("p", "There is no such queue among those that are read.", id="none")
        return
    yield _facts(_without_first(_queue_row(state, now_ms)))
    depths = snapshot.depths(screen.subject)
    plot = line_plot(depths, now_ms, "the depth over time")
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
        (not is_late(one, now_ms), state.career, one)
        for state in snapshot.careers
        for one in state.schedules
        if screen.shows(f"{state.career} {one.name}")
    ]
    found.sort(key=lambda each: (each[0], each[1], each[2].name))
    rows = [_schedule_row(career, one, options, now_ms) for _, career, one in found]
    nothing = "No leader has run a schedule."
    yield _table("schedules", "Schedules, those that are late first", rows, nothing)


def _schedule_row(career: str, one: ScheduleView, options: ScreenOptions, now_ms: int) -> Row:
    record, running = one.record, "paused" if one.wishes.paused else None
    history, run = (record.history, record.running) if record else ((), None)
    if run is not None:
        running = f"by {run.candidate} for {_ago(run.began, now_ms)}, attempt {run.attempt}"
    times = record.when.shown() if record else tag("span", one.problem, class_="bad")
    gaps = [gap for gap in history if isinstance(gap, TickGap) and gap.why in _UNFIT]
    link = _link(PageScreen(ScreenKind.CAREER, career), career, one.name)
    missed = sum(gap.count for gap in gaps) or None
    row: Row = {"Career": link, "Schedule": one.name, "Times": times, "Last": _last(one)}
    row |= {"Next": _next(one, now_ms), "Due": one.overdue or None, "Missed": missed}
    row["Running"] = running
    return row | _do(options, Action(Deed.RUN_NOW, career, one.name))


def _next(one: ScheduleView, now_ms: int) -> Markup | None:
    if one.record is None or one.record.next is None:
        return None
    when = f"{local(one.record.next)} ({told.due_in(one.record.next, now_ms)})"
    return tag("span", when, class_="warn" if is_late(one, now_ms) else "")


def _last(view: ScheduleView) -> Markup | None:
    if (one := told.last_run(view)) is None:
        return None
    word, at = told.outcome(one), one.last if isinstance(one, TickGap) else one.at
    error = f": {cut(one.error, 120)}" if isinstance(one, TickRun) and one.error else ""
    grade = {"done": "good", "failed": "bad", "lost": "bad"}.get(word, "warn")
    return tag("span", local(at), " ", tag("span", word + error, class_=grade))


def _section(id: str, title: str, *content: Any) -> Markup:
    heading = tag("h2", title, id=f"{id}-title")
    return tag("section", heading, *content, id=id, aria_labelledby=f"{id}-title")


def _table(id: str, caption: str, rows: Sequence[Row], nothing: str = "") -> Markup:
    """A table with the keys of its rows as headings; a sentence if there are no rows."""
    if not rows:
        return _section(id, caption, tag("p", nothing, class_="faint"))
    cells = ([tag("td", _shown(one), data_is=name) for name, one in row.items()] for row in rows)
    head = tag("thead", tag("tr", [tag("th", name, scope="col") for name in rows[0]]))
    body = tag("tbody", [tag("tr", some) for some in cells])
    return tag("div", tag("table", tag("caption", caption), head, body), id=id, class_="wide")


def _facts(facts: Row) -> Markup:
    shown = [tag("div", tag("dt", name), tag("dd", _shown(one))) for name, one in facts.items()]
    return tag("dl", shown, id="facts", class_="facts")


def _without_first(row: Row) -> Row:
    return dict(list(row.items())[1:])


def _shown(value: Any) -> Any:
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


def _word(word: Condition) -> Markup:
    return tag("span", word.value[0], class_=f"word {word.value[1]}")


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
