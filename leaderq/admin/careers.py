"""Careers as operators see them: the view of each, the last report of its leader's draining, and
its schedules. They are read together; the number of requests depends on the number of careers only.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import Enum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from leaderq.admin.text import (
    Row,
    Tone,
    Toned,
    briefly,
    cut,
    duration,
    harmless,
    is_like,
    iso,
    local,
)
from leaderq.base import clock
from leaderq.errors import CorruptRecord
from leaderq.schedules.record import PassedOver, TickGap, TickRun

# kazoo and the Kafka client take long to import, which --help should not.
if TYPE_CHECKING:
    from leaderq.election import Member, TermRecord, View
    from leaderq.kafka.consuming.report import DrainReport
    from leaderq.schedules.operating import ScheduleView
    from leaderq.zookeeper import Session

_FRESH_FOR_S = 15.0  # a leader reports every 5 s; an older report was missed twice
_TOGETHER = 25
_LATE_MS = 60_000  # a tick may be so late: a change of leader takes seconds
_UNFIT = (PassedOver.MISSED, PassedOver.LATE, PassedOver.TOO_OLD, PassedOver.TOO_MANY)
_TONES: dict[str, Tone] = {"done": "good", "failed": "bad", "lost": "bad"}
_UNCLEAN = "killed, or cut off from ZooKeeper"


@dataclass(frozen=True)
class ShownReport:
    """A leader's report with its age. ``fresh``: the present leader wrote it, at most 15 s ago."""

    report: DrainReport
    age_s: float
    fresh: bool

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values, for JSON."""
        age_s = round(self.age_s, 1)
        return {"fresh": self.fresh, "age_s": age_s, "lag": self.report.lag, **asdict(self.report)}

    def lag(self, offsets: int) -> str:
        """Return ``offsets``, a lag, as text. If the report is not fresh, its age is added."""
        return str(offsets) if self.fresh else f"{offsets} ({duration(self.age_s)} ago)"


@dataclass(frozen=True)
class CareerState:
    """One career. ``view`` is ``None`` if the career's record cannot be read; ``problem`` then says
    why. ``drain`` is ``None`` if the career drains nothing, or if its report cannot be read;
    ``problem`` then says why, too, and if the operators' wishes cannot be read.
    """

    career: str
    view: View | None
    drain: ShownReport | None = None
    schedules: tuple[ScheduleView, ...] = ()
    problem: str | None = None

    @property
    def next_tick(self) -> dict[str, Any] | None:
        """The earliest next tick of all its schedules; ``None`` if no tick is planned."""
        known = [
            (one.record.next, one.name)
            for one in self.schedules
            if one.record is not None and one.record.next is not None
        ]
        if not known:
            return None
        at, name = min(known)
        return {"schedule": name, "at": iso(at), "at_ms": at}


def career_states(session: Session, root: str, careers: Sequence[str]) -> list[CareerState]:
    """Read the state of each of these careers, with a constant number of requests for every 25."""
    from leaderq.election import Observer
    from leaderq.election.layout import Layout
    from leaderq.schedules.operating import schedules_in
    from leaderq.zookeeper.reading import existing

    now, layouts = clock.calendar_s(), [Layout(root, career) for career in careers]
    views = Observer.views(session, careers, root=root)
    schedules = schedules_in(session, [layout.schedules for layout in layouts])
    reports: dict[str, Any] = {}
    for at in range(0, len(layouts), _TOGETHER):
        some = layouts[at : at + _TOGETHER]
        reports |= existing(session, [layout.progress for layout in some])
    states = []
    for layout in layouts:
        view, drain = views[layout.career], None
        if isinstance(view, CorruptRecord):
            states.append(CareerState(layout.career, None, problem=str(view)))
            continue
        problems = [view.problem] if view.problem else []
        if layout.progress in reports:
            try:
                drain = _shown(view, reports[layout.progress][0], layout.progress, now)
            except CorruptRecord as error:  # the rest is known all the same
                problems.append(str(error))
        ticks = tuple(schedules[layout.schedules])
        problem = "; ".join(problems) or None
        states.append(CareerState(layout.career, view, drain, ticks, problem))
    return states


def _shown(view: View, data: bytes, path: str, now: float) -> ShownReport:
    # only where something is drained: it imports the Kafka client
    from leaderq.kafka.consuming.report import decode

    report = decode(data, path=path)
    age_s = max(0.0, now - report.at)
    fresh = view.leader is not None and report.term == view.term and age_s <= _FRESH_FOR_S
    return ShownReport(report, age_s, fresh)


@dataclass(frozen=True)
class OperatorRequest:
    """A request to a career by an operator who gave a name. ``at_ms`` is in milliseconds since the
    epoch.
    """

    at_ms: int
    by: str
    what: str
    why: str

    @property
    def because(self) -> str:
        """A colon and the reason, to append to a sentence; empty if there is no reason."""
        return f": {self.why}" if self.why else ""


def requests_of(view: View) -> list[OperatorRequest]:
    """The operators' requests that are kept, the newest first; damaged ones are left out."""
    found = []
    for one in view.asked:
        try:
            words = (str(one[name]) for name in ("by", "what", "why"))
            found.append(OperatorRequest(int(one["at"] * 1000), *words))
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
    return found


def members_of(view: View) -> Iterator[tuple[int | None, str, Member]]:
    """Yield the candidates of a career: for each its turn in the line, its role in words, and the
    member. A candidate that cools off has no turn.
    """
    turns = enumerate(view.members, 1 if view.leader or view.repaired else 2)
    roles = {1: "not known" if view.repaired else "leader", 2: "next"}
    for turn, one in turns:
        yield turn, roles.get(turn, "waiting"), one
    for one in view.cooling_off:
        yield None, "cooling off", one


def why_nobody_leads(view: View, now: float) -> Iterator[tuple[str, bool]]:
    """Yield why a career has no leader: a sentence for each fact, and whether that fact is a bad
    one.
    """
    if view.repaired:
        first, *others = map(named, view.members)
        yield f"its term record was repaired; it is not known whether {first} leads", False
        if others:
            yield f"{', '.join(others)} may lead next", False
        return
    if view.history:
        last = view.history[0]
        end = f"ended uncleanly: it was {_UNCLEAN}"
        if last.ended is not None:
            end = f"ended {duration(now - last.ended)} ago ({last.reason})"
            end += f": {harmless(last.error)}" if last.error else ""
        yield f"term {last.number} of {named(last)} {end}", is_bad_end(last)
    for one in view.cooling_off:
        yield f"{named(one)} cools off, and stands again at {until(one.stands_again, now)}", False
    if view.members:
        yield f"{', '.join(map(named, view.members))} may lead next", False
    elif not view.cooling_off:
        yield "no candidate stands", False


def until(at: float | None, now: float) -> str | None:
    """The local time of a coming moment, and how far ahead it is; ``None`` if ``at`` is."""
    if at is None:
        return None
    return f"{time.strftime('%H:%M:%S', time.localtime(at))} (in {duration(at - now)})"


class Condition(Enum):
    """The condition of a career: its name, and how bad it is (``bad``, ``warn``, ``good`` or
    ``faint``). The conditions that mean trouble come first.
    """

    UNREADABLE = "unreadable", "bad"
    LEADERLESS = "nobody leads", "bad"
    HELD_UP = "held up", "bad"
    SILENT = "reports nothing", "warn"
    OVERDUE = "tick overdue", "warn"
    PAUSED = "paused", "warn"
    LED = "led", "good"
    STOPPED = "stopped", "faint"

    @property
    def rank(self) -> int:
        """Its place in lists."""
        return list(Condition).index(self)


def condition_of(state: CareerState, now_ms: int) -> Condition:
    """The condition of a career. ``STOPPED``: it has no candidates, and its last term ended well,
    so that is not trouble.
    """
    view, drain = state.view, state.drain
    if view is None:
        return Condition.UNREADABLE
    if view.leader is None:
        gone_well = not view.members and not view.cooling_off
        gone_well &= not view.history or not is_bad_end(view.history[0])
        return Condition.STOPPED if gone_well else Condition.LEADERLESS
    if drain is not None and drain.report.term == view.term:
        if not drain.fresh:
            return Condition.SILENT
        if drain.report.held_up is not None:
            return Condition.HELD_UP
    if any(is_late(one, now_ms) for one in state.schedules):
        return Condition.OVERDUE
    return Condition.PAUSED if view.paused else Condition.LED


def is_late(schedule: ScheduleView, now_ms: int) -> bool:
    """Whether the schedule's next tick should have begun more than a minute ago. A schedule that is
    paused, or whose tick runs, is not late.
    """
    record = schedule.record
    if record is None or record.next is None or record.running or schedule.wishes.paused:
        return False
    return now_ms - record.next > _LATE_MS


def reasons(state: CareerState, now_ms: int) -> list[str]:
    """Sentences that explain the condition of a career."""
    view, found = state.view, [state.problem] if state.problem else []
    if view is None:
        return found
    if view.leader is None:
        found += [sentence for sentence, _ in why_nobody_leads(view, now_ms / 1000)]
    if view.paused:
        pauses = [one for one in requests_of(view) if one.what == "pause"]
        by = "".join(f" ({one.by}{one.because})" for one in pauses[:1])
        found.append(f"an operator has paused it{by}")
    if state.drain and state.drain.fresh and state.drain.report.held_up:
        found.append(f"held up, and resumes by itself: {harmless(state.drain.report.held_up)}")
    for one in state.schedules:
        if is_late(one, now_ms) and one.record and one.record.next:
            found.append(f"{one.name} was due {due_in(one.record.next, now_ms)}")
    return found


def is_bad_end(term: TermRecord) -> bool:
    """Whether a term that is over has ended uncleanly, or with an error."""
    return term.ended is None or term.error is not None


def how_it_ended(term: TermRecord) -> str:
    """Tell, in words, how a past term ended."""
    if term.ended is None:
        return f"unclean: {_UNCLEAN}"
    return f"{term.reason}: {harmless(term.error)}" if term.error else str(term.reason)


def named(one: Member | TermRecord) -> str:
    """A candidate and its host."""
    return f"{one.candidate} on {one.host}" if one.host else str(one.candidate)


def catch_up(report: DrainReport) -> str:
    """The time until the lag is 0, at the present rate, in words; or words such as ``held up``."""
    if report.held_up is not None:
        return "held up"
    # Some records are always on their way: one second's worth is not a lag.
    if report.lag - report.blocked_by_transaction <= (report.rate_per_s or 0.0):
        return "waits for a transaction" if report.blocked_by_transaction else "keeps up"
    return "not at this rate" if report.catch_up_s is None else duration(report.catch_up_s)


def rate_of(report: DrainReport) -> str | None:
    """Offsets handled a second."""
    if report.rate_per_s is None:
        return None
    return f"{report.rate_per_s:.0f}/s" if report.rate_per_s >= 10 else f"{report.rate_per_s:.1f}/s"


def last_run(view: ScheduleView) -> TickRun | TickGap | None:
    """The newest entry of a schedule's history."""
    return view.record.history[-1] if view.record and view.record.history else None


def outcome(one: TickRun | TickGap) -> str:
    """A word: the outcome of a tick, or why it did not run."""
    if isinstance(one, TickGap):
        return one.why.value
    return one.outcome.value if one.outcome else "running"


def due_in(at_ms: int, now_ms: int) -> str:
    """The distance from ``now_ms`` to ``at_ms`` in words, like ``in 4 s`` or ``4 s ago``."""
    ahead_s = (at_ms - now_ms) / 1000
    return f"in {duration(ahead_s)}" if ahead_s > 0 else f"{duration(-ahead_s)} ago"


# -- how it is shown -------------------------------------------------------------------------------


def in_order(
    careers: tuple[CareerState, ...], wanted: str, now_ms: int
) -> list[tuple[Condition, CareerState]]:
    """The careers whose name or condition contains ``wanted`` or matches it as a pattern, each with
    its condition; those in trouble come first.
    """
    found = [(condition_of(one, now_ms), one) for one in careers]
    shown = [each for each in found if is_like(wanted, each[1].career, each[0].value[0])]
    return sorted(shown, key=lambda each: (each[0].rank, each[1].career))


def career_row(condition: Condition, state: CareerState, now_ms: int) -> Row:
    """One career among many."""
    view, drain, tick = state.view, state.drain, state.next_tick
    report = drain.report if drain and drain.fresh else None
    rate = report and rate_of(report)
    changed = view and (view.began if view.leader else view.ended)
    margin_s = report and report.lease_left_s
    return {
        "Career": state.career,
        "Condition": Toned(*condition.value),
        "Leader": view and view.leader,
        "Term": (view and view.term) or None,
        "Lag": drain and drain.lag(drain.report.lag),
        "Rate": rate,
        "Catch-up": report and rate and catch_up(report),
        "Margin": None if margin_s is None else f"{margin_s:.1f} s",
        "Next tick": tick and f"{tick['schedule']} {due_in(tick['at_ms'], now_ms)}",
        "Stage": view and view.stage,
        "Since": changed and duration(now_ms / 1000 - changed),
        "Why": cut("; ".join(reasons(state, now_ms)), 200),
    }


def career_facts(state: CareerState, view: View, now_ms: int) -> Row:
    """What is known of one career: the name of each fact, and its value."""
    leader = named(view.members[0]) if view.leader and view.members else view.leader
    facts: Row = {"Leader": leader or "nobody", "Term": view.term or "none yet"}
    if view.leader:
        led = view.began and duration(now_ms / 1000 - view.began)
        facts |= {"Stage": view.stage, "Led for": led}
    if (drain := state.drain) is None:
        return facts
    said, left = drain.report, drain.report.lease_left_s
    return facts | {
        "Lag": drain.lag(said.lag),
        "Catches up": catch_up(said),
        "Rate": rate_of(said),
        "Records in hand": said.in_hand,
        "Lease left": None if left is None else f"{left:.1f} s, when it reported",
        "Set aside": f"{said.set_aside} dead letters, {said.skipped} skipped",
        "Reported": f"{duration(drain.age_s)} ago",
    }


def candidate_rows(view: View, now_ms: int) -> list[Row]:
    return [
        {
            "Turn": turn,
            "Candidate": one.candidate,
            "Role": role,
            "Host": one.host,
            "Process": one.pid,
            "Version": one.version,
            "Stands again": until(one.stands_again, now_ms / 1000),
        }
        for turn, role, one in members_of(view)
    ]


def is_present(term: TermRecord, view: View) -> bool:
    """Whether this term goes on."""
    return term.number == view.term and view.leader is not None


def term_rows(view: View, now_ms: int) -> list[Row]:
    """A row for each term that is kept, the newest first. A row also says how long nobody led
    before it.
    """
    rows = []
    for term, before in pairwise([*view.history, None]):
        assert term is not None
        present = is_present(term, view)
        ended = now_ms / 1000 if present else term.ended
        end = Toned("leads now", "good")
        if not present:
            end = Toned(how_it_ended(term), "bad" if is_bad_end(term) else "")
        nobody_s = None
        if before and before.ended is not None and term.began is not None:
            nobody_s = briefly(max(0.0, term.began - before.ended))
        rows.append(
            {
                "Term": term.number,
                "Leader": named(term),
                "Version": term.version,
                "Process": term.pid,
                "Began": term.began and local(int(term.began * 1000)),
                "Lasted": ended and term.began and duration(ended - term.began),
                "Nobody led before": nobody_s,
                "End": end,
            }
        )
    return rows


def request_rows(view: View) -> list[Row]:
    """What operators asked for."""
    return [
        {"When": local(one.at_ms), "Who": one.by, "Asked for": one.what, "Because": one.why}
        for one in requests_of(view)
    ]


def schedule_row(one: ScheduleView, now_ms: int) -> Row:
    record, running = one.record, "paused" if one.wishes.paused else None
    history, run = (record.history, record.running) if record else ((), None)
    if run is not None:
        took = duration((now_ms - run.began) / 1000)
        running = f"by {run.candidate} for {took}, attempt {run.attempt}"
    gaps = [gap for gap in history if isinstance(gap, TickGap) and gap.why in _UNFIT]
    next_tick = None
    if record is not None and record.next is not None:
        when = f"{local(record.next)} ({due_in(record.next, now_ms)})"
        next_tick = Toned(when, "warn" if is_late(one, now_ms) else "")
    return {
        "Schedule": one.name,
        "Times": record.when.shown() if record else Toned(one.problem, "bad"),
        "Last": _last_tick(one),
        "Next": next_tick,
        "Due": one.overdue or None,
        "Missed": sum(gap.count for gap in gaps) or None,
        "Running": running,
    }


def _last_tick(view: ScheduleView) -> Toned | None:
    if (one := last_run(view)) is None:
        return None
    word, at_ms = outcome(one), one.last if isinstance(one, TickGap) else one.at
    error = f": {cut(one.error, 120)}" if isinstance(one, TickRun) and one.error else ""
    return Toned(f"{local(at_ms)} {word}{error}", _TONES.get(word, "warn"))
