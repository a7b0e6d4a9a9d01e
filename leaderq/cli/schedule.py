"""The verbs about schedules. Some show their last and next ticks, and their history; the others ask
the leader for something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from leaderq.admin.careers import due_in, last_run, outcome
from leaderq.admin.text import duration, harmless, iso, local
from leaderq.base import clock
from leaderq.cli.connecting import (
    ONE_CAREER,
    SOME_CAREER,
    connected,
    known_career,
    known_careers,
)
from leaderq.cli.options import CONNECTION, JSON, Given, switch, verb
from leaderq.cli.output import Shade, say, shaded, write_rows
from leaderq.config import Section
from leaderq.errors import ConfigurationError
from leaderq.schedules.record import TickGap, TickRun

if TYPE_CHECKING:
    from leaderq.schedules.operating import ScheduleOperator, ScheduleView
    from leaderq.zookeeper import Session

_NAME = click.Argument(["name"], required=False)
_ONE = (ONE_CAREER, Section.CAREER, *CONNECTION)
_ANY = (SOME_CAREER, Section.CAREER, *CONNECTION)
_SPARE = {"TIMES": 3, "BY": 2, "ATTEMPT": 2, "LASTED": 1}


@verb(JSON, *_ANY)
def ls(given: Given) -> None:
    """List the schedules of one career (--career), or of all: the last tick and its outcome, the
    next tick, how many ticks are due and not run yet, and who runs one now.

    \b
    Examples:
      leaderq schedule ls
      leaderq schedule ls --json | jq -r 'select(.overdue > 0).schedule'
    """
    settings, now = given.settings, clock.now_ms()
    with connected(given) as session:
        found = [
            (career, view)
            for career in known_careers(session, settings)
            for view in _operator(session, given, career).look()
        ]
    for career, view in found:
        if view.problem:
            say(f"leaderq: schedule {view.name} of {career}: {view.problem}")
    write_rows(
        found,
        given.as_json,
        f"no leader has run a schedule of {settings.career or 'any career'} below {settings.root}",
        said=lambda one: _said(*one),
        columns=("CAREER", "SCHEDULE", "TIMES", "LAST", "NEXT", "DUE", "NOW"),
        spare=_SPARE,
        row=lambda one: _row(one[0], one[1], now),
    )


@verb(_NAME, JSON, *_ONE)
def history(given: Given) -> None:
    """Show the outcomes of the last ticks of schedule NAME, the newest first, and why ticks were
    not run. NAME may be left out if the career has only one schedule. 100 entries are kept.

    \b
    Examples:
      leaderq schedule history nightly --career report
      leaderq schedule history nightly --career report --json | jq -r 'select(.error).error'
    """
    with connected(given) as session:
        view = _named(_operator(session, given, known_career(session, given.settings)), given)
    record = view.record
    entries = [] if record is None else [*record.history, record.running]
    write_rows(
        [one for one in reversed(entries) if one is not None],
        given.as_json,
        f"{view.name} has not had a tick yet",
        said=_entry,
        columns=("TICK", "OUTCOME", "BEGAN", "LASTED", "TERM", "BY", "ATTEMPT", "MISSED", "WHY"),
        spare=_SPARE,
        row=_entry_row,
    )


@verb(_NAME, *_ONE)
def run_now(given: Given) -> None:
    """Let the leader do the work of schedule NAME once more, now. This run is not a tick, and does
    not change the next ticks. If nobody leads now, the next leader does it.

    \b
    Example:
      leaderq schedule run-now nightly --career report
    """
    name = _asked(given, lambda operator, name: operator.run_now(name))
    say(f"{name} runs once more; leaderq schedule history shows what becomes of it")


@verb(_NAME, *_ONE)
def pause(given: Given) -> None:
    """Let no tick of schedule NAME begin, until leaderq schedule resume. Ticks that come due
    meanwhile are not run later; the history lists them. A tick that is running continues.

    \b
    Example:
      leaderq schedule pause nightly --career report
    """
    say(f"{_asked(given, lambda operator, name: operator.pause(name))} is paused")


@verb(
    switch(
        "--from-now",
        help="also forget which tick was the last: none is missed, and none waited for because a"
        " calendar was ahead",
    ),
    _NAME,
    *_ONE,
)
def resume(given: Given) -> None:
    """End a pause of schedule NAME.

    \b
    Example:
      leaderq schedule resume nightly --career report
    """
    from_now = given.from_now
    name = _asked(given, lambda operator, name: operator.resume(name, from_now=from_now))
    say(f"{name} is resumed{', and begins with the next tick from now on' if from_now else ''}")


def _at(session: Session, root: str, career: str) -> ScheduleOperator:
    from leaderq.election.layout import Layout
    from leaderq.schedules.operating import ScheduleOperator

    return ScheduleOperator(session, Layout(root, career).schedules)


def _operator(session: Session, given: Given, career: str) -> ScheduleOperator:
    return _at(session, given.settings.root, career)


def _named(operator: ScheduleOperator, given: Given) -> ScheduleView:
    """The schedule that is named; without a name, the only one."""
    views = {view.name: view for view in operator.look()}
    if given.name is None and len(views) == 1:
        return next(iter(views.values()))
    if given.name not in views:
        there = f"its schedules: {', '.join(views)}" if views else "no leader has run one yet"
        what = f"no schedule {given.name!r}" if given.name else "name a schedule"
        raise ConfigurationError(f"{what} of {given.settings.career!r}; {there}")
    return views[given.name]


def _asked(given: Given, ask: Any) -> str:
    with connected(given) as session:
        operator = _operator(session, given, known_career(session, given.settings))
        name = _named(operator, given).name
        ask(operator, name)
    return name


# -- how it is shown -------------------------------------------------------------------------------


def _said(career: str, view: ScheduleView) -> dict[str, Any]:
    record = view.record
    last = last_run(view)
    return {
        "career": career,
        "schedule": view.name,
        "times": record and record.when.shown(),
        "last": last and _entry(last),
        "next": record and iso(record.next),
        "overdue": view.overdue,
        "paused": view.wishes.paused,
        "running": record and record.running and _entry(record.running),
    }


def _row(career: str, view: ScheduleView, now: int) -> tuple[Any, ...]:
    record = view.record
    if record is None:
        return career, view.name, shaded("its record cannot be read", Shade.BAD), *[None] * 4
    last, running = last_run(view), record.running
    told = None if last is None else f"{local(_entry(last)['at_ms'])} {_outcome(last)}"
    following = None
    if record.next is not None:
        following = f"{local(record.next)} ({due_in(record.next, now)})"
    doing = None
    if running is not None:
        since = duration((now - running.began) / 1000)
        doing = f"by {running.candidate} for {since}, attempt {running.attempt}"
    if view.wishes.paused:
        doing = shaded("paused", Shade.WARNING)
    return career, view.name, record.when.shown(), told, following, view.overdue or None, doing


def _outcome(one: TickRun | TickGap) -> str:
    shades = {"done": Shade.GOOD, "failed": Shade.BAD, "lost": Shade.BAD}
    return shaded(word := outcome(one), shades.get(word))


def _entry(one: TickRun | TickGap) -> dict[str, Any]:
    if isinstance(one, TickGap):
        return {
            "at": iso(one.last),
            "at_ms": one.last,
            "outcome": "not-run",
            "why": one.why.value,
            "from": iso(one.first),
            "count": one.count,
        }
    return {
        "at": iso(one.at),
        "at_ms": one.at,
        "outcome": outcome(one),
        "began": iso(one.began),
        "ended": iso(one.ended),
        "term": one.term,
        "candidate": one.candidate,
        "attempt": one.attempt,
        "missed": one.missed,
        "error": one.error,
        "key": one.key,
    }


def _entry_row(one: TickRun | TickGap) -> tuple[Any, ...]:
    if isinstance(one, TickGap):
        upto = f" to {local(one.last)}" if one.last != one.first else ""
        why = f"{one.count} ticks: {one.why.sentence}" if one.count > 1 else one.why.sentence
        return f"{local(one.first)}{upto}", one.why.value, *[None] * 6, why
    lasted = None if one.ended is None else duration((one.ended - one.began) / 1000)
    told = harmless(one.error) if one.error else one.key
    times = local(one.at), _outcome(one), local(one.began), lasted
    return *times, one.term, one.candidate, one.attempt, one.missed or None, told
