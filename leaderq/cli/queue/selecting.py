"""Which dead letters a verb is about."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

import click

from leaderq.cli.queue.options import option
from leaderq.errors import ConfigurationError

if TYPE_CHECKING:
    from leaderq.queues.admin import DeadItem, QueueAdmin

F = TypeVar("F", bound=Callable[..., Any])

names_argument: Callable[[F], F] = click.argument("names", nargs=-1, metavar="[NAME]...")
error_option: Callable[[F], F] = option(
    "--error", metavar="TEXT", help="only letters whose reason or error contains TEXT, in capitals or not"
)


def chosen(keeper: QueueAdmin, names: Sequence[str], error: str | None, limit: int | None = None) -> Iterator[DeadItem]:
    """The letters that are named, else all; of these those with that error, and of these the first ``limit``.

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
