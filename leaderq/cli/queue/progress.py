"""A progress bar for a person who watches; nothing for anybody else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import click


def _unseen(count: int) -> None:
    """Nobody watches."""


@contextmanager
def progress(total: int | None, label: str, *, wanted: bool = True) -> Iterator[Callable[[int], None]]:
    """Gives what is to be told how many more are done. The bar is drawn on standard error, and only if that is a terminal."""
    if not (wanted and total and sys.stderr.isatty()):
        yield _unseen
        return
    with click.progressbar(length=total, label=label, file=sys.stderr, show_pos=True, update_min_steps=200) as bar:
        yield bar.update
