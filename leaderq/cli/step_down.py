"""``leaderq step-down``: end the present term in order, so that the next candidate leads."""

from __future__ import annotations

import click

from leaderq.cli.operating import operator
from leaderq.cli.options import CONNECTION, Given, Verb, takes_settings, timeout_option
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
    with operator(given) as requests:
        view = requests.step_down(timeout_s=timeout_s)
    click.echo(f"{view.leader} leads {view.career}, term {view.term}", err=True)
