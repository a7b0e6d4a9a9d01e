"""``leaderq transfer``: let a candidate of choice lead next."""

from __future__ import annotations

import click

from leaderq.cli.operating import operator
from leaderq.cli.options import CONNECTION, Given, Verb, takes_settings, timeout_option
from leaderq.config import Section


@click.command(cls=Verb)
@click.option("--to", metavar="ID", required=True, envvar="LEADERQ_TO", show_envvar=True, help="candidate that shall lead")
@takes_settings(Section.CAREER, *CONNECTION)
@timeout_option
def transfer(given: Given, to: str, timeout_s: float) -> None:
    """Ask the leader to hand over to candidate ID; return when that one is inaugurated.

    A candidate that leads already is left alone.

    \b
    Example:
      leaderq transfer --career ad-billing --to b
    """
    with operator(given) as requests:
        view = requests.transfer(to, timeout_s=timeout_s)
    click.echo(f"{view.leader} leads {view.career}, term {view.term}", err=True)
