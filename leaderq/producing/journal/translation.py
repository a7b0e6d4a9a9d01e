"""Errors of the file system as those of a journal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leaderq.errors import JournalFailed


@contextmanager
def translated(directory: Path, done: str) -> Iterator[None]:
    """Say which journal could not be opened, read, saved.

    :raises JournalFailed: instead of ``OSError``.
    """
    try:
        yield
    except OSError as exc:
        raise JournalFailed(f"journal {str(directory)!r} could not be {done}: {exc}") from exc
