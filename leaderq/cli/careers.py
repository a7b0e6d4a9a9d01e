"""The verbs about a career: who leads, since when, in which stage, and who waits; if nobody leads,
why; for careers that drain Kafka, how far behind (``status``, ``members``, ``history``). And those
that change who leads, or how (``step-down`` to ``forget``).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from leaderq import clock
from leaderq.cli.connecting import (
    ONE_CAREER,
    SOME_CAREER,
    candidates,
    connected,
    named_career,
    operator,
    views,
)
from leaderq.cli.options import CONNECTION, JSON, YES, Given, needs_yes, number, switch, verb
from leaderq.cli.output import (
    Shade,
    duration,
    harmless,
    local,
    redrawn,
    say,
    shaded,
    write_json,
    write_rows,
    write_table,
)
from leaderq.cli.schedule import due_in, next_tick
from leaderq.config import Section, Settings
from leaderq.errors import ConfigurationError, CorruptRecord, NoNode
from leaderq.exits import ExitCode

if TYPE_CHECKING:
    from leaderq.election import Member, TermRecord, View
    from leaderq.kafka.consuming.report import DrainReport
    from leaderq.zookeeper import Session

_ONE = (ONE_CAREER, Section.CAREER, *CONNECTION)
_ANY = (SOME_CAREER, Section.CAREER, *CONNECTION)
_COLUMNS = ("CAREER", "LEADER", "TERM", "STAGE", "SINCE", "HOST", "PID", "VERSION", "CANDIDATES")
_DRAIN_COLUMNS = ("LAG", "RATE", "CATCH-UP")
_SPARE = {
    "CAREER CLASS": 7,
    "LEADERQ": 6,
    "RATE": 5,
    "PID": 4,
    "HOST": 3,
    "VERSION": 2,
    "CANDIDATES": 2,
    "CATCH-UP": 1,
    "SINCE": 1,
}
_FRESH_FOR_S = 15.0  # a leader reports every 5 s; an older report was missed twice
_UNCLEAN = "killed, or cut off from ZooKeeper"


@dataclass(frozen=True)
class ShownReport:
    """A leader's report with its age; ``fresh``: written lately by the present leader."""

    report: DrainReport
    age_s: float
    fresh: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        age_s = round(self.age_s, 1)
        return {"fresh": self.fresh, "age_s": age_s, "lag": self.report.lag, **asdict(self.report)}

    def lag(self, offsets: int) -> str:
        """How many offsets behind; with the age of a report that is not fresh."""
        return str(offsets) if self.fresh else f"{offsets} ({duration(self.age_s)} ago)"


Found = Sequence[tuple["View", "ShownReport | None", "dict[str, Any] | None"]]


# -- verbs that look -------------------------------------------------------------------------------


@verb(
    switch("--partitions", help="list the drained partitions, with the lag of each"),
    switch("-w", "--watch", help="refresh every second, until Ctrl-C"),
    JSON,
    *_ANY,
)
def status(given: Given) -> ExitCode:
    """Show who leads each career (or only --career), and why if nobody does; of a leader that
    drains Kafka, also how far behind it is; of one with schedules, the next tick.

    LAG counts offsets not handled yet, RATE those handled a second; CATCH-UP is the time until LAG
    is 0 at the rate of the last half minute, or "held up" while something that the records need is
    unreachable. The leader reports them every 5 s; an older report, or one of an earlier term, is
    shown with its age. A narrow terminal shows fewer columns.

    Exit codes: 5 if --career is given and nobody leads it now; else 0, also while that is not known
    because the term record was repaired.

    \b
    Examples:
      leaderq status --watch
      leaderq status --career ad-billing --partitions
      leaderq status --json | jq -r 'select(.leader == null) | "\\(.career) \\(.error)"'
      leaderq status --json | jq -r 'select(.drain.lag > 10000) | "\\(.career) \\(.drain.lag)"'
    """
    settings = given.settings
    with connected(given) as session:

        def look() -> Found:
            now = clock.calendar_s()
            seen = views(session, settings)
            return [
                (
                    view,
                    _report(session, settings.root, view, now),
                    next_tick(session, settings.root, view.career),
                )
                for view in seen
            ]

        def show(found: Found) -> None:
            if given.as_json:
                for view, report, tick in found:
                    drain = report.as_dict() if report else None
                    write_json({**view.as_dict(), "drain": drain, "next_tick": tick})
            elif given.partitions:
                _write_partitions(found)
            else:
                _write_overview(found, settings)

        found = redrawn(look, show) if given.watch else look()
        if not given.watch:
            show(found)
    leads = settings.career is None or found[0][0].leader is not None or found[0][0].repaired
    return ExitCode.OK if leads else ExitCode.NO_LEADER


@verb(JSON, *_ANY)
def members(given: Given) -> None:
    """List candidates in the order of their turns, of one career with --career, else of all; and
    candidates that cool off, with the time at which they stand again.

    \b
    Examples:
      leaderq members --career ad-billing
      leaderq members --json | jq -r 'select(.role == "next").candidate'
    """
    settings = given.settings
    with connected(given) as session:
        found = [member for view in views(session, settings) for member in _members(view)]
    if not given.as_json:
        now = clock.calendar_s()
        found = [{**each, "stands_again": _until(each["stands_again"], now)} for each in found]
    which = settings.career or "any career"
    nobody = f"no candidate stands for {which} below {settings.root}"
    write_rows(found, given.as_json, nobody, spare=_SPARE)


@verb(JSON, *_ONE)
def history(given: Given) -> None:
    """Show the last terms of a career, the newest first: who led, for how long, and why it ended.

    Ten terms before the newest are kept. A term that ended uncleanly (killed, cut off) has no end.

    \b
    Examples:
      leaderq history --career ad-billing
      leaderq history --career ad-billing --json | jq -r 'select(.error).error' | sort | uniq -c
    """
    career = named_career(given.settings)
    with connected(given) as session:
        (view,) = views(session, given.settings)
        buried = _buried(session, given.settings.root, career)
    write_rows(
        view.history,
        given.as_json,
        f"the terms before {view.term + 1} of {career} are lost: its record was repaired"
        if view.term
        else f"nobody has led {career} yet",
        said=lambda each: {
            key: value for key, value in asdict(each).items() if key not in ("past", "other")
        },
        columns=("TERM", "LEADER", "VERSION", "HOST", "PID", "BEGAN", "LASTED", "END"),
        spare=_SPARE,
        row=lambda each: _past(each, view),
    )
    if not given.as_json:
        for sentence in buried:
            say(sentence)


def _buried(session: Session, root: str, career: str) -> list[str]:
    """Sentences about the records that operators let pass, the newest first."""
    from leaderq.election.layout import Layout

    path = Layout(root, career).burials
    if session.exists(path) is None:
        return []
    from leaderq.kafka.handling.burials import read

    return [
        f"{row['at']} was let pass in term {row['term']}, {local(int(row['when'] * 1000))}, as"
        f" {row['by']} asked"
        for row in read(session, path)[0]["done"]
    ]


# -- verbs that change who leads, or how -----------------------------------------------------------

_TIMEOUT = number(
    "--timeout-s",
    "how long to wait until the next leader is inaugurated",
    least=0.1,
    most=86400.0,
    default=60.0,
    metavar="SECONDS",
)


@verb(_TIMEOUT, *_ONE)
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
    *_ONE,
)
def transfer(given: Given) -> None:
    """Ask the leader to hand over to candidate ID; return when that one is inaugurated.

    A candidate that leads already is left alone.

    \b
    Example:
      leaderq transfer --career ad-billing --to b
    """
    with operator(given) as requests:
        view = requests.transfer(given.to, timeout_s=given.timeout_s)
    say(f"{view.leader} leads {view.career}, term {view.term}")


@verb(*_ONE)
def pause(given: Given) -> None:
    """Stop the leader from beginning new units of work, until leaderq resume; it stays the leader.
    Later leaders are paused as well.

    \b
    Example:
      leaderq pause --career ad-billing
    """
    with operator(given) as requests:
        already = " already" if requests.view().paused else ""
        view = requests.pause()
    say(f"{view.career} is paused{already}; {_who_leads(view)}")


@verb(*_ONE)
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
    *_ONE,
)
def raise_floor(given: Given) -> None:
    """Number the next term of a career NUMBER or higher; the present term continues.

    For an ensemble that was rebuilt and has forgotten earlier terms: resources refuse lower numbers
    than they have seen. It also repairs an unreadable term record, because of which nobody can
    lead. Nothing but leaderq forget lowers the number again. After that, and on an ensemble that
    was rebuilt, the career is not known: give --new.

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
    """Delete everything stored for a career; leaderq status does not show it any more.

    Refused while a candidate stands or cools off, or while a process that waited is alive. Offsets
    kept in ZooKeeper are lost. If the career is ever run again, its terms are numbered from 1;
    where resources compare term numbers, run leaderq raise-floor --new afterwards.

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


# -- what is read ----------------------------------------------------------------------------------


def _report(session: Session, root: str, view: View, now: float) -> ShownReport | None:
    """The leader's last report on its draining; ``None`` for a career that drains nothing, or whose
    report is unreadable.
    """
    from leaderq.election.layout import Layout

    path = Layout(root, view.career).progress
    try:
        data, _ = session.get(path)
        # only where something is drained: it imports the Kafka client
        from leaderq.kafka.consuming.report import decode

        report = decode(data, path=path)
    except NoNode:
        return None
    except CorruptRecord as error:  # the other careers, and who leads this one, are shown
        say(f"leaderq: {error}")
        return None
    age_s = max(0.0, now - report.at)
    fresh = view.leader is not None and report.term == view.term and age_s <= _FRESH_FOR_S
    return ShownReport(report, age_s, fresh)


def _members(view: View) -> Iterator[dict[str, Any]]:
    turns = enumerate(view.members, 1 if view.leader or view.repaired else 2)
    roles = {1: "not known" if view.repaired else "leader", 2: "next"}
    line = [(roles.get(turn, "waiting"), one) for turn, one in turns]
    line += [("cooling off", one) for one in view.cooling_off]
    for turn, (role, one) in enumerate(line, 1):
        yield {
            "career": view.career,
            "turn": None if role == "cooling off" else turn,
            "candidate": one.candidate,
            "role": role,
            "host": one.host,
            "pid": one.pid,
            "stands_again": one.stands_again,
            "version": one.version,
            "leaderq": one.leaderq,
            "career_class": one.career_class,
        }


# -- how it is shown -------------------------------------------------------------------------------


def _write_overview(found: Found, settings: Settings) -> None:
    if not found:
        say(f"nobody has stood for any career below {settings.root} at {settings.zookeeper}")
        return
    now = clock.calendar_s()
    some_drain = any(report for _, report, _ in found)
    some_tick = any(tick for _, _, tick in found)
    columns = [*_COLUMNS, *(_DRAIN_COLUMNS if some_drain else ()), *(["NEXT TICK"] * some_tick)]
    write_table(
        columns,
        [
            (
                *_leading(view, now),
                *(_draining(report) if some_drain else ()),
                *([_next(tick)] if some_tick else ()),
            )
            for view, report, tick in found
        ],
        _SPARE,
    )
    for view, report, _ in found:
        if view.leader is None:
            for line in _why_nobody_leads(view, now):
                click.echo(line)
        elif report is not None and report.fresh and report.report.held_up is not None:
            say(f"{view.career} is held up, and resumes by itself: {report.report.held_up}")


def _leading(view: View, now: float) -> tuple[Any, ...]:
    stage = view.stage or ("not known" if view.repaired else None)
    stage = f"{stage or 'no leader'} (paused)" if view.paused else stage
    led = view.began if view.leader else view.ended
    return (
        view.career,
        shaded(view.leader, Shade.GOOD) if view.leader else None,
        view.term or None,
        shaded(stage, Shade.WARNING) if view.paused else stage,
        None if led is None else duration(now - led),
        view.host,
        view.pid,
        view.members[0].version if view.leader and view.members else None,
        ", ".join(view.candidates) or None,
    )


def _why_nobody_leads(view: View, now: float) -> Iterator[str]:
    """One fact a line, for a career without a leader."""
    if view.repaired:
        first, *others = map(_named, view.members)
        yield f"{view.career}: its term record was repaired; it is not known whether {first} leads"
        if others:
            yield f"{view.career}: {', '.join(others)} may lead next"
        return
    if view.history:
        last = view.history[0]
        end = f"ended uncleanly: it was {_UNCLEAN}"
        if last.ended is not None:
            end = f"ended {duration(now - last.ended)} ago ({last.reason})"
            end += f": {harmless(last.error)}" if last.error else ""
        bad = last.ended is None or last.error is not None
        line = f"{view.career}: term {last.number} of {_named(last)} {end}"
        yield shaded(line, Shade.BAD if bad else None)
    for one in view.cooling_off:
        until = _until(one.stands_again, now)
        yield f"{view.career}: {_named(one)} cools off, and stands again at {until}"
    if view.members:
        yield f"{view.career}: {', '.join(map(_named, view.members))} may lead next"
    elif not view.cooling_off:
        yield f"{view.career}: no candidate stands"


def _who_leads(view: View) -> str:
    return "who leads is not known" if view.repaired else f"{view.leader or 'nobody'} leads"


def _named(one: Member | TermRecord) -> str:
    return f"{one.candidate} on {one.host}" if one.host else str(one.candidate)


def _until(at: float | None, now: float) -> str | None:
    if at is None:
        return None
    return f"{time.strftime('%H:%M:%S', time.localtime(at))} (in {duration(at - now)})"


def _past(record: TermRecord, view: View) -> tuple[Any, ...]:
    now, ended, error = clock.calendar_s(), record.ended, record.error
    if record.number == view.term and view.leader is not None:
        end, ended = shaded(f"leads now ({view.stage})", Shade.GOOD), now
    elif ended is None:
        end = shaded(f"unclean: {_UNCLEAN}", Shade.BAD)
    elif error:
        end = shaded(f"{record.reason}: {harmless(error)}", Shade.BAD)
    else:
        end = str(record.reason)
    lasted = None if ended is None or record.began is None else duration(ended - record.began)
    began = None
    if record.began is not None:
        began = f"{local(int(record.began * 1000))} ({duration(now - record.began)})"
    where = record.host, record.pid
    return record.number, record.candidate, record.version, *where, began, lasted, end


def _draining(report: ShownReport | None) -> tuple[str | None, str | None, str | None]:
    if report is None:
        return None, None, None
    said = report.report
    lag = report.lag(said.lag)
    if not report.fresh or said.rate_per_s is None:
        return lag, None, None
    rate = f"{said.rate_per_s:.0f}/s" if said.rate_per_s >= 10 else f"{said.rate_per_s:.1f}/s"
    return lag, rate, _catch_up(said)


def _next(tick: dict[str, Any] | None) -> str | None:
    return f"{tick['schedule']} {due_in(tick['at_ms'])}" if tick else None


def _catch_up(report: DrainReport) -> str:
    if report.held_up is not None:
        return "held up"
    # Some records are always on their way: one second's worth is not a lag.
    if report.lag - report.blocked_by_transaction <= (report.rate_per_s or 0.0):
        return "waits for a transaction" if report.blocked_by_transaction else "keeps up"
    return "not at this rate" if report.catch_up_s is None else duration(report.catch_up_s)


def _write_partitions(found: Found) -> None:
    rows = [
        {
            "career": view.career,
            "partition": name,
            "position": each.position,
            "end": each.end,
            "lag": report.lag(each.lag),
            "blocked": each.blocked_by_transaction or None,
        }
        for view, report, _ in found
        if report
        for name, each in sorted(report.report.partitions.items(), key=_natural)
    ]
    write_rows(rows, False, "no leader has reported partitions; does the career drain Kafka?")


def _natural(item: tuple[str, Any]) -> tuple[str, int]:
    topic, _, number = item[0].rpartition("-")
    return topic, int(number) if number.isdecimal() else -1
