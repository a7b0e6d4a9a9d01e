"""``leaderq status``, ``members`` and ``history``: who leads, since when, in which stage, and who
waits; if nobody leads, why; for careers that drain Kafka, how far behind.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from leaderq.cli.completion import ONE_CAREER, SOME_CAREER
from leaderq.cli.connecting import connected, views
from leaderq.cli.options import CONNECTION, Given, Verb, json_option, takes_settings
from leaderq.cli.output import (
    Column,
    Shade,
    clock_time,
    duration,
    harmless,
    redrawn,
    shaded,
    since,
    write_json,
    write_rows,
    write_table,
)
from leaderq.config import Section, Settings
from leaderq.errors import CorruptRecord, NoNode
from leaderq.exits import ExitCode

if TYPE_CHECKING:
    from leaderq.election import Member, TermRecord, View
    from leaderq.kafka.consuming.report import DrainReport
    from leaderq.zookeeper import Session

# Where the terminal is too narrow, the columns with the highest numbers are left out first.
_COLUMNS = (
    Column("CAREER"),
    Column("LEADER"),
    Column("TERM"),
    Column("STAGE"),
    Column("SINCE", spare=1),
    Column("HOST", spare=3),
    Column("PID", spare=4),
    Column("CANDIDATES", spare=2),
)
_DRAIN_COLUMNS = (Column("LAG"), Column("RATE", spare=5), Column("CATCH-UP", spare=1))
FRESH_FOR_S = 15.0
"""A leader reports every 5 s; what is older than this was missed twice."""


@dataclass(frozen=True)
class ShownReport:
    """A leader's report, as old as it is; ``fresh``: written lately by the leader there is now."""

    report: DrainReport
    age_s: float
    fresh: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        age_s = round(self.age_s, 1)
        return {"fresh": self.fresh, "age_s": age_s, "lag": self.report.lag, **asdict(self.report)}

    def lag(self, offsets: int) -> str:
        """``offsets`` behind, or having been so."""
        return str(offsets) if self.fresh else f"{offsets} ({duration(self.age_s)} ago)"


Found = Sequence[tuple["View", "ShownReport | None"]]


@click.command(cls=Verb)
@click.option(
    "--partitions", is_flag=True, help="list the partitions drained, with the lag of each"
)
@click.option("-w", "--watch", is_flag=True, help="show it again every second, until Ctrl-C")
@takes_settings(Section.CAREER, *CONNECTION, career=SOME_CAREER)
@json_option
def status(given: Given, partitions: bool, watch: bool, as_json: bool) -> ExitCode:
    """Show who leads each career (or only --career), and why if nobody does; and of a leader that
    drains Kafka, how far behind it is.

    LAG counts offsets that are not handled yet, RATE those handled a second, CATCH-UP is how long
    until LAG is 0 at the rate of the last half minute, or "held up" while what the records need is
    away. The leader reports them every 5 s; an older report, or one of an earlier term, is shown
    with its age. A terminal that is too narrow shows fewer columns.

    Exit codes: 5 if --career is given and nobody leads it now; else 0.

    \b
    Examples:
      leaderq status
      leaderq status --watch
      leaderq status --career ad-billing --json
      leaderq status --career ad-billing --partitions
      leaderq status --json | jq -r 'select(.leader == null) | "\\(.career) \\(.error)"'
      leaderq status --json | jq -r 'select(.drain.lag > 10000) | "\\(.career) \\(.drain.lag)"'
    """
    with connected(given) as (session, settings):

        def look() -> Found:
            now = time.time()
            seen = views(session, settings)
            return [(view, _report(session, settings.root, view, now)) for view in seen]

        show = _json_lines if as_json else _partition_table if partitions else _overview
        found = redrawn(look, lambda found: show(found, settings)) if watch else look()
        if not watch:
            show(found, settings)
    leads = settings.career is None or found[0][0].leader is not None
    return ExitCode.OK if leads else ExitCode.NO_LEADER


@click.command(cls=Verb)
@takes_settings(Section.CAREER, *CONNECTION, career=SOME_CAREER)
@json_option
def members(given: Given, as_json: bool) -> None:
    """List candidates in the order of their turns, of one career with --career, else of all; and
    those that do not stand now, because they cool off, with the time at which they stand again.

    \b
    Examples:
      leaderq members --career ad-billing
      leaderq members --json | jq -r 'select(.role == "next").candidate'
    """
    with connected(given) as (session, settings):
        found = [member for view in views(session, settings) for member in _members(view)]
    now = time.time()
    rows = (
        found
        if as_json
        else [{**each, "stands_again": _until(each["stands_again"], now)} for each in found]
    )
    if not write_rows(rows, as_json=as_json) and not as_json:
        click.echo(
            f"no candidate stands for {settings.career or 'any career'} below {settings.root}",
            err=True,
        )


@click.command(cls=Verb)
@takes_settings(Section.CAREER, *CONNECTION, career=ONE_CAREER)
@json_option
def history(given: Given, as_json: bool) -> None:
    """Show the last terms of a career, the newest first: who led, for how long, and why it ended.

    Ten terms before the newest are kept. A term that ended uncleanly (killed, cut off) has no end.

    \b
    Examples:
      leaderq history --career ad-billing
      leaderq history --career ad-billing --json | jq -r 'select(.error).error' | sort | uniq -c
    """
    with connected(given, one_career=True) as (session, settings):
        (view,) = views(session, settings)
    if as_json:
        for each in view.history:
            write_json({name: value for name, value in asdict(each).items() if name != "past"})
    elif view.history:
        headings = ("TERM", "LEADER", "HOST", "PID", "BEGAN", "LASTED", "END")
        write_table(headings, [_past(each, view) for each in view.history])
    else:
        click.echo(f"nobody has led {view.career} yet", err=True)


# -- what is read ----------------------------------------------------------------------------------


def _report(session: Session, root: str, view: View, now: float) -> ShownReport | None:
    """What the leader last said of its draining; ``None`` for a career that drains nothing, or
    whose report is unreadable.
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
    except CorruptRecord as error:  # the rest of what was asked for is not its business
        click.echo(f"leaderq: {error}", err=True)
        return None
    age_s = max(0.0, now - report.at)
    fresh = view.leader is not None and report.term == view.term and age_s <= FRESH_FOR_S
    return ShownReport(report, age_s, fresh)


def _members(view: View) -> list[dict[str, Any]]:
    next_turn = 1 if view.leader else 0
    roles = {0: "leader", next_turn: "next"}
    line = [
        _member(view, turn, one, roles.get(turn - 1, "waiting"))
        for turn, one in enumerate(view.members, 1)
    ]
    return line + [_member(view, None, one, "cooling off") for one in view.cooling_off]


def _member(view: View, turn: int | None, one: Member, role: str) -> dict[str, Any]:
    return {"career": view.career, "turn": turn, "candidate": one.candidate, "role": role,
            "host": one.host, "pid": one.pid, "stands_again": one.stands_again}  # fmt: skip


# -- how it is shown -------------------------------------------------------------------------------


def _json_lines(found: Found, _settings: Settings) -> None:
    for view, report in found:
        write_json({**view.as_dict(), "drain": report.as_dict() if report else None})


def _overview(found: Found, settings: Settings) -> None:
    if not found:
        click.echo(
            f"nobody has stood for any career below {settings.root} at {settings.zookeeper}",
            err=True,
        )
        return
    now = time.time()
    some_drain = any(report for _, report in found)
    write_table(
        (*_COLUMNS, *(_DRAIN_COLUMNS if some_drain else ())),
        [
            (*_leading(view, now), *(_draining(report) if some_drain else ()))
            for view, report in found
        ],
    )
    for view, report in found:
        if view.leader is None:
            for line in _why_nobody_leads(view, now):
                click.echo(line)
        elif report is not None and report.fresh and report.report.held_up is not None:
            held_up = f"{view.career} is held up, and goes on by itself: {report.report.held_up}"
            click.echo(held_up, err=True)


def _leading(view: View, now: float) -> tuple[Any, ...]:
    stage = f"{view.stage or 'no leader'} (paused)" if view.paused else view.stage
    led = view.began if view.leader else view.ended
    return (
        view.career,
        shaded(view.leader, Shade.GOOD) if view.leader else None,
        view.term or None,
        shaded(stage, Shade.WARNING) if view.paused else stage,
        None if led is None else duration(max(0.0, now - led)),
        view.host,
        view.pid,
        ", ".join(view.candidates) or None,
    )


def _why_nobody_leads(view: View, now: float) -> Iterator[str]:
    """One fact a line, for a career without a leader."""
    if view.history:
        last = view.history[0]
        bad = last.ended is None or last.error is not None
        yield shaded(
            f"{view.career}: term {last.number} of {_named(last)} {_end(last, now)}",
            Shade.BAD if bad else None,
        )
    for one in view.cooling_off:
        yield (
            f"{view.career}: {_named(one)} cools off, and stands again at"
            f" {_until(one.stands_again, now)}"
        )
    if view.members:
        waiting = ", ".join(_named(one) for one in view.members)
        yield f"{view.career}: {waiting} may lead next"
    elif not view.cooling_off:
        yield f"{view.career}: no candidate stands"


def _end(record: TermRecord, now: float) -> str:
    if record.ended is None:
        return "ended uncleanly: it was killed, or cut off from ZooKeeper"
    ago = f"{duration(max(0.0, now - record.ended))} ago"
    return f"ended {ago} ({record.reason})" + (
        f": {harmless(record.error)}" if record.error else ""
    )


def _named(one: Member | TermRecord) -> str:
    return f"{one.candidate} on {one.host}" if one.host else str(one.candidate)


def _until(at: float | None, now: float) -> str | None:
    return None if at is None else f"{clock_time(at)} (in {duration(max(0.0, at - now))})"


def _past(record: TermRecord, view: View) -> tuple[Any, ...]:
    goes_on = record.number == view.term and view.leader is not None
    if goes_on:
        end: str | None = shaded(f"leads now ({view.stage})", Shade.GOOD)
    elif record.ended is None:
        end = shaded("unclean: killed, or cut off from ZooKeeper", Shade.BAD)
    else:
        text = f"{record.reason}: {harmless(record.error)}" if record.error else str(record.reason)
        end = shaded(text, Shade.BAD if record.error else None)
    ended = time.time() if goes_on else record.ended
    lasted = (
        None if ended is None or record.began is None else duration(max(0.0, ended - record.began))
    )
    began = since(record.began, time.time())
    return record.number, record.candidate, record.host, record.pid, began, lasted, end


def _draining(report: ShownReport | None) -> tuple[str | None, str | None, str | None]:
    if report is None:
        return None, None, None
    said = report.report
    lag = report.lag(said.lag)
    if not report.fresh or said.rate_per_s is None:
        return lag, None, None
    rate = f"{said.rate_per_s:.0f}/s" if said.rate_per_s >= 10 else f"{said.rate_per_s:.1f}/s"
    return lag, rate, _catch_up(said)


def _catch_up(report: DrainReport) -> str:
    if report.held_up is not None:
        return "held up"
    # What is on its way at any moment is no backlog: a second's worth, or nothing.
    if report.lag <= (report.rate_per_s or 0.0):
        return "keeps up"
    return "not at this rate" if report.catch_up_s is None else duration(report.catch_up_s)


def _partition_table(found: Found, _settings: Settings) -> None:
    rows = [row for view, report in found if report for row in _partitions(view, report)]
    if not write_rows(rows, as_json=False):
        click.echo("no leader has reported partitions; does the career drain Kafka?", err=True)


def _partitions(view: View, report: ShownReport) -> Iterator[dict[str, Any]]:
    rows = report.report.partitions.items()
    for name, each in sorted(rows, key=lambda item: _natural(item[0])):
        place = {"career": view.career, "partition": name}
        yield {**place, "position": each.position, "end": each.end, "lag": report.lag(each.lag)}


def _natural(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number) if number.isdecimal() else -1
