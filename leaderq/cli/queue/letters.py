"""``leaderq queue dead`` and ``queue requeue``: the dead letters of a queue."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leaderq.cli.options import Given, Verb, json_option, needs_yes, number, switch, yes_option
from leaderq.cli.output import progress, write_json, write_table
from leaderq.cli.queue.options import keeping, queue_argument, takes_connection
from leaderq.cli.queue.showing import LETTER_HEADINGS, letter_json, letter_row
from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from leaderq.cli.queue.options import Operated
    from leaderq.queues.admin import DeadItem

F = TypeVar("F", bound=Callable[..., Any])

names_argument: Callable[[F], F] = click.argument("names", nargs=-1, metavar="[NAME]...")
error_option: Callable[[F], F] = click.option(
    "--error",
    metavar="TEXT",
    help="only letters whose reason or error contains TEXT; case is ignored",
)


def chosen(
    keeper: Operated, path: str, names: Sequence[str], error: str | None, limit: int | None = None
) -> Iterator[DeadItem]:
    """The letters that are named, else all; of these those with that error, and of these the first
    ``limit``.

    :raises ConfigurationError: one that is named is not there.
    """
    wanted = None
    if names:
        known = keeper.dead_letters.names()
        if absent := sorted(set(names) - set(known)):
            lists = f"leaderq queue dead {path} lists them"
            raise ConfigurationError(f"there is no dead letter {absent[0]} of {path}; {lists}")
        wanted = [name for name in known if name in set(names)]
    letters = keeper.dead_letters.browse(wanted)
    return islice((letter for letter in letters if error is None or letter.says(error)), limit)


def paced(letters: Iterator[DeadItem], rate: int | None) -> Iterator[Iterable[DeadItem]]:
    """All of them or, in each second, the next ``rate``."""
    if rate is None:
        yield letters
        return
    while some := list(islice(letters, rate)):
        yield some
        time.sleep(1.0)


@click.command(cls=Verb)
@takes_connection
@queue_argument
@names_argument
@error_option
@number(
    "--limit",
    "show N letters at most, those that died first; of a Dyno queue the urgent ones first",
)
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
    with the last error; ORIGIN is the name it had, or its id, which names a letter of a Dyno queue
    too. It stays at PATH-dead, or in the Dyno queue, until it is sent back (leaderq queue requeue)
    or dropped.

    \b
    Examples:
      leaderq queue dead /orders --error timeout
      leaderq queue dead /orders --json | jq -r .error | sort | uniq -c
      leaderq queue dead /orders queue-0000000007 --drop --yes
    """
    if drop:
        needs_yes(yes, f"this deletes dead letters of {path}")
    with keeping(given, path) as (_, keeper):
        letters = chosen(keeper, path, names, error, limit)
        if drop:
            with progress(len(names) or keeper.dead_letters.count(), "dropping") as on_progress:
                done = keeper.dead_letters.drop(letters, on_progress=on_progress)
            if as_json:
                write_json({"dropped": done.moved, "gone": done.gone})
            click.echo(
                f"{done.moved} dropped" + (f"; {done.gone} gone before" if done.gone else ""),
                err=True,
            )
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
@number(
    "--limit", "send N letters back at most, in the order in which leaderq queue dead shows them"
)
@click.option(
    "--rate", type=click.IntRange(min=1), metavar="N", help="send N letters a second back at most"
)
@switch("--dry-run", help="only say how many would be sent back")
@json_option
def requeue(
    given: Given,
    path: str,
    names: tuple[str, ...],
    everything: bool,
    error: str | None,
    limit: int | None,
    rate: int | None,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send dead letters of the queue at PATH back to it: those that are NAMEd, those with an
    --error, or --all.

    Each goes to the tail of its kind, with the id, priority or due time it had, and has all its
    attempts again. It leaves the dead letters and appears in the queue in one transaction: whatever
    happens, it is never lost, and never there twice. Interrupted or killed, run it again.

    \b
    Examples:
      leaderq queue requeue /orders queue-0000000007
      leaderq queue requeue /orders --error timeout --dry-run
      leaderq queue requeue /orders --all --rate 50
    """
    if not (names or everything or error is not None):
        raise ConfigurationError("say which letters: by NAME, with --error TEXT, or --all")
    if names and everything:
        raise ConfigurationError("give either NAMEs or --all")
    with keeping(given, path) as (_, keeper):
        letters = chosen(keeper, path, names, error, limit)
        if dry_run:
            count = sum(1 for _ in letters)
            if as_json:
                write_json({"would_requeue": count})
            click.echo(f"{count} would be sent back to {path}", err=True)
            return
        total = len(names) or min(limit or 2**31, keeper.dead_letters.count())
        with progress(total, "sending back") as on_progress:
            done = [
                keeper.dead_letters.requeue(some, on_progress=on_progress)
                for some in paced(letters, rate)
            ]
        moved, lost = sum(one.moved for one in done), sum(one.gone for one in done)
        if as_json:
            write_json({"requeued": moved, "gone": lost, "remain": keeper.dead_letters.count()})
        gone = f"; {lost} gone before" if lost else ""
        click.echo(
            f"{moved} sent back to {path}{gone}; {keeper.dead_letters.count()} remain", err=True
        )
