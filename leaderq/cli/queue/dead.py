"""``leaderq queue dead``: the dead letters of a queue."""

from __future__ import annotations

import click

from leaderq.cli.options import Given, Verb, json_option, takes_settings
from leaderq.cli.queue.options import SECTIONS, keeping, limit_option, needs_yes, queue_argument, switch, yes_option
from leaderq.cli.queue.progress import progress
from leaderq.cli.queue.selecting import chosen, error_option, names_argument
from leaderq.cli.queue.showing import LETTER_HEADINGS, letter_json, letter_row
from leaderq.cli.queue.streaming import write_long_table
from leaderq.cli.writing import write_json


@click.command(cls=Verb)
@takes_settings(*SECTIONS)
@queue_argument
@names_argument
@error_option
@limit_option("show N letters at most, those that died first")
@switch("--drop", help="delete the letters instead of showing them")
@yes_option
@json_option
def dead(
    given: Given,
    path: str,
    names: tuple[str, ...],
    error: str | None,
    limit: int | None,
    drop: bool,
    yes: bool,
    as_json: bool,
) -> None:
    """Show the dead letters of the queue at PATH, or those that are NAMEd; with --drop, delete them.

    A letter is an item that failed too often (REASON attempts), or could not be read (corrupt), with the last error; ORIGIN is the
    name it had. It stays at PATH-dead until it is sent back (leaderq queue requeue) or dropped.

    \b
    Examples:
      leaderq queue dead /orders --error timeout
      leaderq queue dead /orders --json | jq -r .error | sort | uniq -c
      leaderq queue dead /orders queue-0000000007 --drop --yes
    """
    if drop:
        needs_yes(yes, f"this deletes dead letters of {path}")
    with keeping(given, path) as (_, keeper):
        letters = chosen(keeper, names, error, limit)
        if drop:
            with progress(len(names) or keeper.dead_letters.count(), "dropping") as on_progress:
                done = keeper.dead_letters.drop(letters, on_progress=on_progress)
            if as_json:
                write_json({"dropped": done.moved, "gone": done.gone})
            click.echo(f"{done.moved} dropped" + (f"; {done.gone} gone before" if done.gone else ""), err=True)
        elif as_json:
            for letter in letters:
                write_json(letter_json(letter))
        elif not write_long_table(LETTER_HEADINGS, map(letter_row, letters)):
            click.echo(f"no dead letters {'of that kind ' if error else ''}of {path}", err=True)
