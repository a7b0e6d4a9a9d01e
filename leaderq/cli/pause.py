"""``leaderq pause``: let the leader, present or future, begin no new unit of work."""

from __future__ import annotations

import click

from leaderq.cli.operating import operator
from leaderq.cli.options import CONNECTION, Given, Verb, takes_settings
from leaderq.config import Section


@click.command(cls=Verb)
@takes_settings(Section.CAREER, *CONNECTION)
def pause(given: Given) -> None:
    """Let the leader begin no new unit of work, until leaderq resume; leadership stays where it is.

    Leaders to come are paused as well.

    \b
    Example:
      leaderq pause --career ad-billing
    """
    with operator(given) as requests:
        view = requests.pause()
    click.echo(f"{view.career} is paused; {view.leader or 'nobody'} leads", err=True)
