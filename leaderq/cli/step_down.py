"""``leaderq step-down``: end the present term in order, so that the next candidate leads."""

from __future__ import annotations

import click

from leaderq.cli.career_lookup import known_career
from leaderq.cli.connecting import open_session
from leaderq.cli.options import CONNECTION, Given, Verb, takes_settings, timeout_option
from leaderq.cli.quiet import quiet
from leaderq.config import Section


@click.command(cls=Verb)
@takes_settings(Section.CAREER, *CONNECTION)
@timeout_option
def step_down(given: Given, timeout_s: float) -> None:
    """Ask the leader to finish its unit of work and hand over; return when the next leader is inaugurated.

    \b
    Example:
      leaderq step-down --career ad-billing
    """
    settings = given.load().settings
    quiet()
    from leaderq.election import Operator

    with open_session(settings) as session:
        career = known_career(session, settings)
        view = Operator(session, career, root=settings.root).step_down(timeout_s=timeout_s)
    click.echo(f"{view.leader} leads {career}, term {view.term}", err=True)
