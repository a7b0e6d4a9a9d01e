"""The verbs about careers. Some show who leads, since when, in which stage, and who waits; why
nobody leads; and, for careers that drain Kafka, how far behind they are (``status``, ``members``,
``history``). The others change who leads, or how (``step-down`` to ``forget``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from leaderq.admin.careers import (
    Condition,
    career_row,
    career_states,
    condition_of,
    members_of,
    reasons,
    requests_of,
    term_rows,
    until,
    why_nobody_leads,
)
from leaderq.admin.text import harmless, local
from leaderq.base import clock
from leaderq.base.exits import ExitCode
from leaderq.cli.connecting import (
    ONE_CAREER,
    SOME_CAREER,
    candidates,
    connected,
    known_career,
    known_careers,
    named_career,
    operator,
)
from leaderq.cli.options import CONNECTION, JSON, YES, Given, needs_yes, number, switch, verb
from leaderq.cli.output import Shade, redrawn, say, shaded, write_json, write_rows, write_table
from leaderq.config import Section, Settings
from leaderq.errors import ConfigurationError, CorruptRecord

if TYPE_CHECKING:
    from leaderq.admin.careers import CareerState
    from leaderq.election import View
    from leaderq.zookeeper import Session

_ONE = (ONE_CAREER, Section.CAREER, *CONNECTION)
_ANY = (SOME_CAREER, Section.CAREER, *CONNECTION)
_COLUMNS = ("CAREER", "LEADER", "TERM", "STAGE", "SINCE", "HOST", "PID", "VERSION", "CANDIDATES")
_DRAIN_COLUMNS = ("LAG", "RATE", "CATCH-UP")
_SPARE = {
    "CAREER CLASS": 7,
    "NOBODY LED BEFORE": 5,
    "PROCESS": 4,
    "LEADERQ": 6,
    "RATE": 5,
    "PID": 4,
    "HOST": 3,
    "VERSION": 2,
    "CANDIDATES": 2,
    "CATCH-UP": 1,
    "SINCE": 1,
}
_SHADES = {"good": Shade.GOOD, "warn": Shade.WARNING, "bad": Shade.BAD}

_FILTERS = (
    switch("--failing", help="only careers in trouble: nobody leads, held up, silent, overdue"),
    switch("--leaderless", help="only careers that nobody leads, also those that were stopped"),
)


# -- verbs that look -------------------------------------------------------------------------------


@verb(
    switch("--partitions", help="list the drained partitions, with the lag of each"),
    switch("-w", "--watch", help="refresh every second, until Ctrl-C"),
    *_FILTERS,
    JSON,
    *_ANY,
)
def status(given: Given) -> ExitCode:
    """Show who leads each career (or only --career), or why nobody does. For a leader that drains
    Kafka, also show how far behind it is; for one with schedules, the next tick.

    LAG counts the offsets that are not handled yet, RATE those that are handled in a second.
    CATCH-UP is the time until LAG is 0 at the rate of the last half minute, or "held up" while
    something that the records need is unreachable. The leader reports them every 5 s; an older
    report, or one of an earlier term, is shown with its age. A narrow terminal shows fewer columns.

    Exit codes: 1 if the record of a career cannot be read (the others are shown); 5 if --career is
    given and nobody leads that career, or one of those that match; else 0. It is also 0 if a term
    record was repaired, because then it is not known who leads.

    \b
    Examples:
      leaderq status --watch
      leaderq status --career ad-billing --partitions
      leaderq status --career 'team-*' --failing
      leaderq status --leaderless --json | jq -r '"\\(.career): \\(.why)"'
      leaderq status --json | jq -r 'select(.drain.lag > 10000) | "\\(.career) \\(.drain.lag)"'
    """
    settings = given.settings
    with connected(given) as session:

        def look() -> list[CareerState]:
            found = career_states(session, settings.root, known_careers(session, settings))
            for one in found:
                if one.problem:  # all else is shown
                    say(f"leaderq: {one.problem}")
            return found

        def show(found: list[CareerState]) -> None:
            _write_states(found, given)

        found = redrawn(look, show) if given.watch else look()
        if not given.watch:
            show(found)
    seen = [one.view for one in found if one.view is not None]
    if len(seen) < len(found):
        return ExitCode.FAILED
    led = (view.leader or view.repaired for view in seen)
    return ExitCode.OK if settings.career is None or all(led) else ExitCode.NO_LEADER


def _write_states(found: Sequence[CareerState], given: Given) -> None:
    wanted, now_ms = _wanted(found, given), clock.now_ms()
    if given.as_json:
        for one, view in wanted:
            why = "; ".join(reasons(one, now_ms)) or None
            drain = one.drain.as_dict() if one.drain else None
            write_json({**view.as_dict(), "why": why, "drain": drain, "next_tick": one.next_tick})
    elif found and not wanted:
        say("no career is like that now")
    elif given.partitions:
        _write_partitions(wanted)
    else:
        _write_overview(wanted, given.settings)


def _wanted(found: Sequence[CareerState], given: Given) -> list[tuple[CareerState, View]]:
    """The careers to show, each with its view."""
    return [
        (one, one.view)
        for one in found
        if one.view is not None
        and (not given.leaderless or one.view.leader is None)
        and (not given.failing or condition_of(one, clock.now_ms()).rank < Condition.PAUSED.rank)
    ]


@verb(JSON, *_ANY)
def members(given: Given) -> ExitCode:
    """List the candidates of one career (--career), or of all, in the order of their turns.
    Candidates that cool off are listed, too, with the time at which they stand again.

    Exit codes: 1 if the record of a career cannot be read (the others are listed), else 0.

    \b
    Examples:
      leaderq members --career ad-billing
      leaderq members --json | jq -r 'select(.role == "next").candidate'
    """
    from leaderq.election import Observer

    settings = given.settings
    with connected(given) as session:
        read = Observer.views(session, known_careers(session, settings), root=settings.root)
    unread = [each for each in read.values() if isinstance(each, CorruptRecord)]
    for error in unread:
        say(f"leaderq: {error}")
    views = (each for each in read.values() if not isinstance(each, CorruptRecord))
    found = [member for view in views for member in _members(view)]
    if not given.as_json:
        now = clock.calendar_s()
        found = [{**each, "stands_again": until(each["stands_again"], now)} for each in found]
    which = settings.career or "any career"
    nobody = f"no candidate stands for {which} below {settings.root}"
    write_rows(found, given.as_json, nobody, spare=_SPARE)
    return ExitCode.FAILED if unread else ExitCode.OK


@verb(JSON, *_ONE)
def history(given: Given) -> None:
    """Show the last terms of a career, the newest first: who led, for how long, and why the term
    ended.

    The ten terms before the newest are kept. If a term ended uncleanly (its leader was killed or
    cut off), its end is not known.

    \b
    Examples:
      leaderq history --career ad-billing
      leaderq history --career ad-billing --json | jq -r 'select(.error).error' | sort | uniq -c
    """
    from leaderq.election import Observer

    with connected(given) as session:
        career = known_career(session, given.settings)
        view = Observer(session, career, root=given.settings.root).view()
        buried = _buried(session, given.settings.root, career)
    shown = term_rows(view, clock.now_ms())
    write_rows(
        zip(view.history, shown, strict=True),
        given.as_json,
        f"the terms before {view.term + 1} of {career} are lost: its record was repaired"
        if view.term
        else f"nobody has led {career} yet",
        said=lambda each: {
            key: value for key, value in asdict(each[0]).items() if key not in ("past", "other")
        },
        columns=[name.upper() for row in shown[:1] for name in row],
        spare=_SPARE,
        row=lambda each: [_cell(value) for value in each[1].values()],
    )
    if not given.as_json:
        for sentence in (*_asked(view), *buried):
            say(sentence)


def _asked(view: View) -> Iterator[str]:
    """Sentences about what named operators asked for, the newest first."""
    for one in requests_of(view):
        yield harmless(f"{one.by} asked for {one.what}, {local(one.at_ms)}{one.because}")


def _buried(session: Session, root: str, career: str) -> list[str]:
    """Sentences about the records that operators let pass, the newest first, without damaged
    entries.
    """
    from leaderq.election.layout import Layout

    path = Layout(root, career).burials
    if session.exists(path) is None:
        return []
    from leaderq.kafka.handling.burials import read

    found = []
    for row in read(session, path)[0]["done"]:
        with suppress(KeyError, TypeError, ValueError, OverflowError):
            when = local(int(row["when"] * 1000))
            what = f"{row['at']} was let pass in term {row['term']}, {when}"
            found.append(f"{what}, as {row['by']} asked")
    return found


# -- verbs that change who leads, or how -----------------------------------------------------------

_TIMEOUT = number(
    "--timeout-s",
    "how long to wait until the next leader is inaugurated",
    least=0.1,
    most=86400.0,
    default=60.0,
    metavar="SECONDS",
)
_REASON = click.Option(
    ["--reason"], metavar="TEXT", default="", help="why; leaderq history shows it, and who asked"
)


@verb(_TIMEOUT, _REASON, *_ONE)
def step_down(given: Given) -> None:
    """Ask the leader to finish its unit of work and hand over; return when the next leader is
    inaugurated.

    \b
    Example:
      leaderq step-down --career ad-billing
    """
    with operator(given) as requests:
        view = requests.step_down(timeout_s=given.timeout_s)
    say(f"{view.leader} leads {view.career}, term {view.term}")


@verb(
    click.Option(
        ["--to"],
        metavar="ID",
        required=True,
        help="candidate that is to lead",
        shell_complete=candidates,
    ),
    _TIMEOUT,
    _REASON,
    *_ONE,
)
def transfer(given: Given) -> None:
    """Ask the leader to hand over to candidate ID; return when ID is inaugurated.

    If ID already leads, nothing happens.

    \b
    Example:
      leaderq transfer --career ad-billing --to b
    """
    with operator(given) as requests:
        view = requests.transfer(given.to, timeout_s=given.timeout_s)
    say(f"{view.leader} leads {view.career}, term {view.term}")


@verb(_REASON, *_ONE)
def pause(given: Given) -> None:
    """Stop the leader from beginning new units of work, until leaderq resume. It remains the
    leader. Later leaders are paused as well.

    \b
    Example:
      leaderq pause --career ad-billing --reason "the bank is closed"
    """
    with operator(given) as requests:
        already = " already" if requests.view().paused else ""
        view = requests.pause()
    say(f"{view.career} is paused{already}; {_who_leads(view)}")


@verb(_REASON, *_ONE)
def resume(given: Given) -> None:
    """Let the leader continue its work after leaderq pause.

    \b
    Example:
      leaderq resume --career ad-billing
    """
    with operator(given) as requests:
        what = "resumes" if requests.view().paused else "was not paused"
        view = requests.resume()
    say(f"{view.career} {what}; {_who_leads(view)}")


@verb(
    click.Argument(["number"], type=click.IntRange(1, 2**63 - 1)),
    switch("--new", help="also for a career that nobody has ever stood for"),
    switch("--yes", help="also if NUMBER is more than a million above the highest one known"),
    _REASON,
    *_ONE,
)
def raise_floor(given: Given) -> None:
    """Number the next term of a career NUMBER or higher; the present term continues.

    Use this if an ensemble was rebuilt and has forgotten earlier terms, because resources refuse
    lower numbers than they have seen. It also repairs an unreadable term record, because of which
    nobody can lead. Only leaderq forget lowers the number again. After leaderq forget, and on a
    rebuilt ensemble, the career is not known: give --new.

    \b
    Examples:
      leaderq raise-floor 1200 --career ad-billing
      leaderq raise-floor 1200 --career ad-billing --new
    """
    with operator(given, must_be_known=not given.new) as requests:
        try:
            number = requests.raise_floor(given.number, far=given.yes)
        except ConfigurationError as error:
            if not given.yes:
                raise ConfigurationError(f"{error}; give --yes if that is what you want") from error
            raise
    asked = "" if number <= given.number else f", as it was before: that is above {given.number}"
    say(f"the next term is numbered {number} or higher{asked}")


@verb(YES, *_ONE)
def forget(given: Given) -> None:
    """Delete everything stored for a career; leaderq status then no longer shows it.

    Refused while a candidate stands or cools off, or while a process that stood is still running.
    Offsets kept in ZooKeeper are lost. If the career is run again, its terms are numbered from 1;
    if resources compare term numbers, run leaderq raise-floor --new after this.

    \b
    Example:
      leaderq forget --career ad-billing --yes
    """
    career, root = named_career(given.settings), given.settings.root
    needs_yes(
        given, f"this deletes everything stored for {career!r} below {root}, with its offsets"
    )
    with operator(given) as requests:
        count = requests.forget()
    say(f"{career} is forgotten; {count} znodes deleted")


# -- how it is shown -------------------------------------------------------------------------------


def _members(view: View) -> Iterator[dict[str, Any]]:
    for turn, role, one in members_of(view):
        yield {
            "career": view.career,
            "turn": turn,
            "candidate": one.candidate,
            "role": role,
            "host": one.host,
            "pid": one.pid,
            "stands_again": one.stands_again,
            "version": one.version,
            "leaderq": one.leaderq,
            "career_class": one.career_class,
        }


def _write_overview(found: Sequence[tuple[CareerState, View]], settings: Settings) -> None:
    if not found:
        say(f"nobody has stood for any career below {settings.root} at {settings.zookeeper}")
        return
    now_ms = clock.now_ms()
    shown = [career_row(condition_of(one, now_ms), one, now_ms) for one, _ in found]
    some_drain = any(one.drain for one, _ in found)
    some_tick = any(one.next_tick for one, _ in found)
    columns = [*_COLUMNS, *(_DRAIN_COLUMNS if some_drain else ()), *(["NEXT TICK"] * some_tick)]
    write_table(
        columns,
        [
            (
                *_leading(view, row["Since"]),
                *((row["Lag"], row["Rate"], row["Catch-up"]) if some_drain else ()),
                *([row["Next tick"]] if some_tick else ()),
            )
            for (_, view), row in zip(found, shown, strict=True)
        ],
        _SPARE,
    )
    for one, view in found:
        report = one.drain
        if view.leader is None:
            for sentence, is_bad in why_nobody_leads(view, now_ms / 1000):
                click.echo(shaded(f"{view.career}: {sentence}", Shade.BAD if is_bad else None))
        elif report is not None and report.fresh and report.report.held_up is not None:
            say(f"{view.career} is held up, and resumes by itself: {report.report.held_up}")


def _leading(view: View, since: str | None) -> tuple[Any, ...]:
    stage = view.stage or ("not known" if view.repaired else None)
    stage = f"{stage or 'no leader'} (paused)" if view.paused else stage
    return (
        view.career,
        shaded(view.leader, Shade.GOOD) if view.leader else None,
        view.term or None,
        shaded(stage, Shade.WARNING) if view.paused else stage,
        since,
        view.host,
        view.pid,
        view.members[0].version if view.leader and view.members else None,
        ", ".join(view.candidates) or None,
    )


def _who_leads(view: View) -> str:
    return "who leads is not known" if view.repaired else f"{view.leader or 'nobody'} leads"


def _cell(value: Any) -> Any:
    tone = getattr(value, "tone", "")
    return shaded(value, _SHADES[tone]) if tone in _SHADES else value


def _write_partitions(found: Sequence[tuple[CareerState, View]]) -> None:
    rows = [
        {
            "career": view.career,
            "partition": name,
            "position": each.position,
            "end": each.end,
            "lag": report.lag(each.lag),
            "blocked": each.blocked_by_transaction or None,
        }
        for one, view in found
        if (report := one.drain)
        for name, each in sorted(report.report.partitions.items(), key=_natural)
    ]
    write_rows(rows, False, "no leader has reported partitions; does the career drain Kafka?")


def _natural(item: tuple[str, Any]) -> tuple[str, int]:
    topic, _, number = item[0].rpartition("-")
    return topic, int(number) if number.isdecimal() else -1
