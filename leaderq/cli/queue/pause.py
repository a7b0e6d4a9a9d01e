"""``leaderq queue pause``: let consumers begin no new item."""

from __future__ import annotations

import click

from leaderq.cli.options import Given, Verb, takes_settings
from leaderq.cli.queue.options import SECTIONS, keeping, queue_argument


@click.command(cls=Verb)
@takes_settings(*SECTIONS)
@queue_argument
def pause(given: Given, path: str) -> None:
    """Let the consumers of the queue at PATH begin no new item, until leaderq queue resume.

    What they have begun they finish. It holds for consumers that start later too. Java's consumers do not know of it. Producers go on.

    \b
    Example:
      leaderq queue pause /orders
    """
    with keeping(given, path) as (_, keeper):
        is_news = keeper.pause()
        click.echo(f"{path} is paused" + ("" if is_news else " already"), err=True)
