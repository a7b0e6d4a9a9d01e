"""``leaderq resume``: end a pause."""

from __future__ import annotations

import click

from leaderq.cli.career_lookup import known_career
from leaderq.cli.connecting import open_session
from leaderq.cli.options import CONNECTION, Given, Verb, takes_settings
from leaderq.cli.quiet import quiet
from leaderq.config import Section


@click.command(cls=Verb)
@takes_settings(Section.CAREER, *CONNECTION)
def resume(given: Given) -> None:
    """Let the leader take up its work again after leaderq pause.

    \b
    Example:
      leaderq resume --career ad-billing
    """
    settings = given.load().settings
    quiet()
    from leaderq.election import Operator

    with open_session(settings) as session:
        career = known_career(session, settings)
        view = Operator(session, career, root=settings.root).resume()
    click.echo(f"{career} is not paused; {view.leader or 'nobody'} leads", err=True)
