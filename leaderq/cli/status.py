"""``leaderq status`` and ``leaderq members``: who leads, since when, in which stage, and who waits;
for careers that drain Kafka, how far behind.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import click

from leaderq.cli.connecting import open_session, views
from leaderq.cli.options import CONNECTION, Given, Verb, json_option, takes_settings
from leaderq.cli.output import duration, quiet, since, write_json, write_table
from leaderq.config import Section
from leaderq.errors import CorruptRecord, NoNode

if TYPE_CHECKING:
    from leaderq.election import View
    from leaderq.kafka.consuming.report import DrainReport
    from leaderq.zookeeper import Session

_HEADINGS = ("CAREER", "LEADER", "TERM", "STAGE", "SINCE", "HOST", "PID", "CANDIDATES")
_DRAIN_HEADINGS = ("LAG", "RATE", "CATCH-UP")
_PARTITION_HEADINGS = ("CAREER", "PARTITION", "POSITION", "END", "LAG")
FRESH_FOR_S = 15.0
"""A leader reports every 5 s; what is older than this was missed twice."""


@dataclass(frozen=True)
class Drained:
    """A leader's report, as old as it is; ``fresh``: written lately by the leader there is now."""

    report: DrainReport
    age_s: float
    fresh: bool

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"fresh": self.fresh, "age_s": round(self.age_s, 1), "lag": self.report.lag, **asdict(self.report)}

    def lag(self, offsets: int) -> str:
        """So many offsets behind, or having been so."""
        return str(offsets) if self.fresh else f"{offsets} ({duration(self.age_s)} ago)"


@click.command(cls=Verb)
@click.option("--partitions", is_flag=True, help="list the partitions that are drained, with the lag of each")
@takes_settings(Section.CAREER, *CONNECTION)
@json_option
def status(given: Given, partitions: bool, as_json: bool) -> None:
    """Show who leads: one career with --career, else all of them; and how far behind it is where it drains Kafka.

    LAG counts offsets that are not handled yet, RATE those handled a second, CATCH-UP is how long until LAG is 0 at the rate of
    the last half minute, or "held up" while what the records need is away. The leader reports them every 5 s; an older report,
    or one of an earlier term, is shown with its age.

    \b
    Examples:
      leaderq status
      leaderq status --career ad-billing --json
      leaderq status --career ad-billing --partitions
      leaderq status --json | jq -r 'select(.leader == null).career'
      leaderq status --json | jq -r 'select(.drain.lag > 10000) | "\\(.career) \\(.drain.lag)"'
    """
    settings = given.load().settings
    quiet()
    with open_session(settings) as session:
        now = time.time()
        found = [(view, _drained(session, settings.root, view, now)) for view in views(session, settings)]
    if as_json:
        for view, drained in found:
            write_json({**view.as_dict(), "drain": drained.as_dict() if drained else None})
    elif partitions:
        _write_partitions(found)
    elif found:
        _write_careers(found, now)
        _write_hold_ups(found)
    else:
        click.echo(f"nobody has stood for any career below {settings.root} at {settings.zookeeper}", err=True)


def _drained(session: Session, root: str, view: View, now: float) -> Drained | None:
    """What the leader last said of its draining; ``None`` for a career that drains nothing, or whose report is unreadable."""
    from leaderq.election.layout import Layout

    path = Layout(root, view.career).progress
    try:
        data, _ = session.get(path)
        from leaderq.kafka.consuming.report import decode  # only where something is drained: it imports the Kafka client

        report = decode(data, path=path)
    except NoNode:
        return None
    except CorruptRecord as error:  # the rest of what was asked for is not its business
        click.echo(f"leaderq: {error}", err=True)
        return None
    age_s = max(0.0, now - report.at)
    return Drained(report, age_s, view.leader is not None and report.term == view.term and age_s <= FRESH_FOR_S)


def _write_careers(found: Sequence[tuple[View, Drained | None]], now: float) -> None:
    some_drain = any(drained for _, drained in found)
    write_table(
        (*_HEADINGS, *(_DRAIN_HEADINGS if some_drain else ())),
        [(*_leading(view, now), *(_draining(drained) if some_drain else ())) for view, drained in found],
    )


def _write_hold_ups(found: Sequence[tuple[View, Drained | None]]) -> None:
    for view, drained in found:
        if drained is not None and drained.fresh and drained.report.held_up is not None:
            click.echo(f"{view.career} is held up, and goes on by itself: {drained.report.held_up}", err=True)


def _leading(view: View, now: float) -> tuple[Any, ...]:
    return (
        view.career,
        view.leader,
        view.term or None,
        _stage(view.stage, view.paused),
        since(view.began if view.leader else view.ended, now),
        view.host,
        view.pid,
        ", ".join(view.candidates) or None,
    )


def _draining(drained: Drained | None) -> tuple[str | None, str | None, str | None]:
    if drained is None:
        return None, None, None
    report = drained.report
    lag = drained.lag(report.lag)
    if not drained.fresh or report.rate_per_s is None:
        return lag, None, None
    return lag, f"{report.rate_per_s:.0f}/s" if report.rate_per_s >= 10 else f"{report.rate_per_s:.1f}/s", _catch_up(report)


def _catch_up(report: DrainReport) -> str:
    if report.held_up is not None:
        return "held up"
    # What is on its way at any moment is no backlog: a second's worth, or nothing.
    if report.lag <= (report.rate_per_s or 0.0):
        return "keeps up"
    return "not at this rate" if report.catch_up_s is None else duration(report.catch_up_s)


def _write_partitions(found: Sequence[tuple[View, Drained | None]]) -> None:
    rows = [row for view, drained in found if drained for row in _partitions(view, drained)]
    if rows:
        write_table(_PARTITION_HEADINGS, rows)
    else:
        click.echo("no leader has reported partitions; does the career drain Kafka?", err=True)


def _partitions(view: View, drained: Drained) -> Iterator[tuple[Any, ...]]:
    for name, each in sorted(drained.report.partitions.items(), key=lambda item: _natural(item[0])):
        yield view.career, name, each.position, each.end, drained.lag(each.lag)


def _natural(name: str) -> tuple[str, int]:
    topic, _, number = name.rpartition("-")
    return topic, int(number) if number.isdecimal() else -1


def _stage(stage: str | None, paused: bool) -> str | None:
    return f"{stage or 'no leader'} (paused)" if paused else stage


@click.command(cls=Verb)
@takes_settings(Section.CAREER, *CONNECTION)
@json_option
def members(given: Given, as_json: bool) -> None:
    """List candidates in the order of their turns: of one career with --career, else of all.

    \b
    Examples:
      leaderq members --career ad-billing
      leaderq members --json | jq -r 'select(.role == "next").candidate'
    """
    settings = given.load().settings
    quiet()
    with open_session(settings) as session:
        found = [member for view in views(session, settings) for member in _members(view)]
    if as_json:
        for member in found:
            write_json(member)
    elif found:
        write_table(("CAREER", "TURN", "CANDIDATE", "ROLE"), [tuple(member.values()) for member in found])
    else:
        click.echo(f"no candidate stands for {settings.career or 'any career'} below {settings.root}", err=True)


def _members(view: View) -> list[dict[str, Any]]:
    next_turn = 1 if view.leader else 0
    roles = {0: "leader", next_turn: "next"}
    return [
        {"career": view.career, "turn": turn + 1, "candidate": candidate, "role": roles.get(turn, "waiting")}
        for turn, candidate in enumerate(view.candidates)
    ]
