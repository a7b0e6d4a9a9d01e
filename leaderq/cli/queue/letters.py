"""``leaderq queue dead`` and ``queue requeue``: the dead letters of a queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leaderq.cli.options import Given, Verb, json_option, needs_yes, switch, yes_option
from leaderq.cli.output import progress, write_json, write_table
from leaderq.cli.queue.options import keeping, limit_option, queue_argument, takes_connection
from leaderq.cli.queue.showing import LETTER_HEADINGS, letter_json, letter_row
from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from leaderq.queues.admin import DeadItem, QueueAdmin

F = TypeVar("F", bound=Callable[..., Any])

names_argument: Callable[[F], F] = click.argument("names", nargs=-1, metavar="[NAME]...")
error_option: Callable[[F], F] = click.option(
    "--error", metavar="TEXT", help="only letters whose reason or error contains TEXT, whatever the case of its letters"
)


def chosen(keeper: QueueAdmin, names: Sequence[str], error: str | None, limit: int | None = None) -> Iterator[DeadItem]:
    """The letters that are named, else all; of these those with that error, and of these the first
    ``limit``.

    :raises ConfigurationError: one that is named is not there.
    """
    known = keeper.dead_letters.names()
    if absent := sorted(set(names) - set(known)):
        raise ConfigurationError(
            f"there is no dead letter {absent[0]} at {keeper.paths.dead}; leaderq queue dead {keeper.paths.path} lists them"
        )
    wanted = [name for name in known if name in set(names)] if names else known
    letters = (letter for letter in keeper.dead_letters.browse(wanted) if error is None or letter.says(error))
    return islice(letters, limit)


@click.command(cls=Verb)
@takes_connection
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
    """Show the dead letters of the queue at PATH, or those that are NAMEd; with --drop, delete
    them.

    A letter is an item that failed too often (REASON attempts), or could not be read (corrupt),
    with the last error; ORIGIN is the name it had. It stays at PATH-dead until it is sent back
    (leaderq queue requeue) or dropped.

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
        elif not write_table(LETTER_HEADINGS, map(letter_row, letters)):
            click.echo(f"no dead letters {'of that kind ' if error else ''}of {path}", err=True)


@click.command(cls=Verb)
@takes_connection
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
    """Send dead letters of the queue at PATH back to it: those that are NAMEd, those with an
    --error, or --all.

    Each goes to the tail of its kind, with the id, priority or due time it had, and has all its
    attempts again. It leaves PATH-dead and appears at PATH in one transaction: whatever happens, it
    is never lost, and never there twice. Interrupted or killed, run it again.

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
