"""The folder that keeps fetched jars between runs, and the lock that lets one process at a time change it.

The folder is ``$LEADERQ_CACHE``, else ``$XDG_CACHE_HOME/leaderq``, else ``~/.cache/leaderq``. It may be deleted at any time
while no server is starting: everything in it can be fetched again.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from leaderq.errors import ConfigurationError


def cache_folder() -> Path:
    """The cache folder, made if it is not there.

    :raises ConfigurationError: it cannot be made or written.
    """
    named = os.environ.get("LEADERQ_CACHE")
    shared = os.environ.get("XDG_CACHE_HOME")
    folder = Path(named).expanduser() if named else (Path(shared) if shared else Path.home() / ".cache") / "leaderq"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise ConfigurationError(
            f"the cache folder {str(folder)!r} cannot be made ({exc.strerror}); set LEADERQ_CACHE"
        ) from exc
    if not os.access(folder, os.W_OK):
        raise ConfigurationError(f"the cache folder {str(folder)!r} cannot be written; set LEADERQ_CACHE to one that can")
    return folder.resolve()


@contextmanager
def alone(name: str) -> Iterator[None]:
    """Hold the cache's lock ``name`` against every other process and thread; the kernel frees it if this process dies.

    The wait has no bound of its own: it lasts as long as the other process fetches, and that is bounded by its time-outs.
    """
    with (cache_folder() / f".{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
