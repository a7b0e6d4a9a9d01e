"""``leaderq pause``: let the leader, present or future, begin no new unit of work."""

from __future__ import annotations

import click

from leaderq.cli.career_lookup import known_career
from leaderq.cli.connecting import open_session
from leaderq.cli.options import CONNECTION, Given, Verb, takes_settings
from leaderq.cli.quiet import quiet
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
    settings = given.load().settings
    quiet()
    from leaderq.election import Operator

    with open_session(settings) as session:
        career = known_career(session, settings)
        view = Operator(session, career, root=settings.root).pause()
    click.echo(f"{career} is paused; {view.leader or 'nobody'} leads", err=True)
