"""``leaderq status``: who leads, since when, in which stage, and who waits."""

from __future__ import annotations

import time

import click

from leaderq.cli.career_lookup import views
from leaderq.cli.connecting import open_session
from leaderq.cli.options import CONNECTION, Given, Verb, json_option, takes_settings
from leaderq.cli.quiet import quiet
from leaderq.cli.writing import since, write_json, write_table
from leaderq.config import Section

_HEADINGS = ("CAREER", "LEADER", "TERM", "STAGE", "SINCE", "HOST", "PID", "CANDIDATES")


@click.command(cls=Verb)
@takes_settings(Section.CAREER, *CONNECTION)
@json_option
def status(given: Given, as_json: bool) -> None:
    """Show who leads: one career with --career, else all of them.

    \b
    Examples:
      leaderq status
      leaderq status --career ad-billing --json
      leaderq status --json | jq -r 'select(.leader == null).career'
    """
    settings = given.load().settings
    quiet()
    with open_session(settings) as session:
        found = views(session, settings)
    if as_json:
        for view in found:
            write_json(view.as_dict())
        return
    if not found:
        click.echo(f"nobody has stood for any career below {settings.root} at {settings.zookeeper}", err=True)
        return
    now = time.time()
    write_table(
        _HEADINGS,
        [
            (
                view.career,
                view.leader,
                view.term or None,
                _stage(view.stage, view.paused),
                since(view.began if view.leader else view.ended, now),
                view.host,
                view.pid,
                ", ".join(view.candidates) or None,
            )
            for view in found
        ],
    )


def _stage(stage: str | None, paused: bool) -> str | None:
    return f"{stage or 'no leader'} (paused)" if paused else stage
