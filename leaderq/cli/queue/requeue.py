"""``leaderq queue requeue``: dead letters go back to their queue."""

from __future__ import annotations

import click

from leaderq.cli.options import Given, Verb, json_option, takes_settings
from leaderq.cli.queue.options import SECTIONS, keeping, limit_option, queue_argument, switch
from leaderq.cli.queue.progress import progress
from leaderq.cli.queue.selecting import chosen, error_option, names_argument
from leaderq.cli.writing import write_json
from leaderq.errors import ConfigurationError


@click.command(cls=Verb)
@takes_settings(*SECTIONS)
@queue_argument
@names_argument
@switch("--all", "everything", help="send all letters back")
@error_option
@limit_option("send N letters back at most, those that died first")
@json_option
def requeue(
    given: Given,
    path: str,
    names: tuple[str, ...],
    everything: bool,
    error: str | None,
    limit: int | None,
    as_json: bool,
) -> None:
    """Send dead letters of the queue at PATH back to it: those that are NAMEd, those with an --error, or --all.

    Each goes to the tail of its kind, with the id, priority or due time it had, and has all its attempts again. It leaves PATH-dead
    and appears at PATH in one transaction: whatever happens, it is never lost, and never there twice. Interrupted or killed, run it
    again.

    \b
    Examples:
      leaderq queue requeue /orders queue-0000000007
      leaderq queue requeue /orders --error timeout
      leaderq queue requeue /orders --all
    """
    if not (names or everything or error is not None):
        raise ConfigurationError("say which letters: by NAME, with --error TEXT, or --all")
    if names and everything:
        raise ConfigurationError("give either NAMEs or --all")
    with keeping(given, path) as (_, keeper):
        letters = chosen(keeper, names, error, limit)
        total = len(names) or min(limit or 2**31, keeper.dead_letters.count())
        with progress(total, "sending back") as on_progress:
            done = keeper.dead_letters.requeue(letters, on_progress=on_progress)
        if as_json:
            write_json({"requeued": done.moved, "gone": done.gone, "remain": keeper.dead_letters.count()})
        gone = f"; {done.gone} gone before" if done.gone else ""
        click.echo(f"{done.moved} sent back to {path}{gone}; {keeper.dead_letters.count()} remain", err=True)
