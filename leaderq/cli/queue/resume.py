"""``leaderq queue resume``: end a pause."""

from __future__ import annotations

import click

from leaderq.cli.options import Given, Verb, takes_settings
from leaderq.cli.queue.options import SECTIONS, keeping, queue_argument


@click.command(cls=Verb)
@takes_settings(*SECTIONS)
@queue_argument
def resume(given: Given, path: str) -> None:
    """Let the consumers of the queue at PATH go on.

    \b
    Example:
      leaderq queue resume /orders
    """
    with keeping(given, path) as (_, keeper):
        was_paused = keeper.resume()
        click.echo(f"{path} goes on" if was_paused else f"{path} was not paused", err=True)
