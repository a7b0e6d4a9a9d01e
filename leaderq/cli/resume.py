"""``leaderq resume``: end a pause."""

from __future__ import annotations

import click

from leaderq.cli.operating import operator
from leaderq.cli.options import CONNECTION, Given, Verb, takes_settings
from leaderq.config import Section


@click.command(cls=Verb)
@takes_settings(Section.CAREER, *CONNECTION)
def resume(given: Given) -> None:
    """Let the leader take up its work again after leaderq pause.

    \b
    Example:
      leaderq resume --career ad-billing
    """
    with operator(given) as requests:
        view = requests.resume()
    click.echo(f"{view.career} is not paused; {view.leader or 'nobody'} leads", err=True)
