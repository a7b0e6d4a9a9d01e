"""Folders for servers' data that do not outlive their owner.

Each folder holds a locked file. The owner removes its folder when done; folders of owners that were killed are known by their
lock being free, and are swept when the next one is made.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final

_PREFIX: Final = "leaderq-data-"


class ScratchFolder:
    """A new empty folder, readable by its owner only."""

    def __init__(self, label: str) -> None:
        _sweep()
        with _only_sweeper():
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{label}-"))
            self._lock = (self.path / ".owner").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Delete the folder and all in it; may be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


class _only_sweeper:  # noqa: N801 - used as a statement
    """Between the making of a folder and its lock no sweeper may see it as ownerless."""

    def __enter__(self) -> None:
        self._file = (Path(tempfile.gettempdir()) / f"leaderq-sweep-{os.getuid()}.lock").open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _sweep() -> None:
    with _only_sweeper():
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            _remove_if_ownerless(folder)


def _remove_if_ownerless(folder: Path) -> None:
    try:
        with (folder / ".owner").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return  # locked by its owner, someone else's, or just removed
