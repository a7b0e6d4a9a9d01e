"""The servers that this process runs, and who wants to hear of failures. Imports nothing, for the pytest plugin loads it always."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from leaderq.testing.server import Server

failure_listeners: Final[list[Callable[[Server, BaseException], None]]] = []
"""Called with a server whose ``with`` block ends in an error, before its log goes with its data."""

_started: Final[dict[Server, int]] = {}


def remember(server: Server) -> None:
    """Stop ``server`` at the exit of this process, so that its data do not stay behind."""
    _started[server] = os.getpid()


def forget(server: Server) -> None:
    """The opposite of :func:`remember`."""
    _started.pop(server, None)


def started_servers() -> list[Server]:
    """The servers that were started and not stopped, by this process and not by the one that forked it."""
    return [server for server, owner in list(_started.items()) if owner == os.getpid()]


@atexit.register
def _stop_all() -> None:
    for server in started_servers():
        server.stop()
