"""``leaderq raise-floor``: number the next term at least so high, and repair a spoilt term record."""

from __future__ import annotations

import click

from leaderq.cli.operating import operator
from leaderq.cli.options import CONNECTION, Given, Verb, takes_settings
from leaderq.config import Section


@click.command(cls=Verb)
@click.argument("number", type=click.IntRange(min=1))
@takes_settings(Section.CAREER, *CONNECTION)
def raise_floor(given: Given, number: int) -> None:
    """Number the next term of a career at least NUMBER; the present one goes on.

    For an ensemble that was rebuilt and has forgotten the terms before: resources refuse lower numbers than they have
    seen. Also repairs a term record that cannot be read, which keeps everybody from leading.

    \b
    Example:
      leaderq raise-floor 1200 --career ad-billing
    """
    with operator(given) as requests:
        requests.raise_floor(number)
    click.echo(f"the next term is numbered {number} or higher", err=True)
