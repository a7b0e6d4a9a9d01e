"""Where kazoo's log lines go: quietened, and stripped of secrets.

kazoo logs session passwords (level 5), ``addauth`` credentials and data (DEBUG), and a line or two per attempt while
servers are away. A session says itself, once, what changed; so of kazoo's lines only errors keep their level, warnings
and news become DEBUG, and everything below is dropped before it is formatted.
"""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger("leaderq.zookeeper.kazoo")


class TransportJournal:
    """Stands in for the ``logging.Logger`` of one kazoo client. ``trouble`` is the newest warning, for our error
    messages."""

    def __init__(self, label: str) -> None:
        self._label = label
        self.trouble = ""

    def log(self, level: int, message: str, *args: Any, **kwargs: Any) -> None:
        if level >= logging.WARNING:
            self.warning(message, *args)

    def debug(self, message: str, *args: Any, **kwargs: Any) -> None:
        """Dropped: these lines carry passwords and data."""

    def info(self, message: str, *args: Any, **kwargs: Any) -> None:
        log.debug("%s: " + message, self._label, *args)

    def warning(self, message: str, *args: Any, **kwargs: Any) -> None:
        self.trouble = message % args if args else message
        log.debug("%s: %s", self._label, self.trouble)

    warn = warning

    def error(self, message: str, *args: Any, **kwargs: Any) -> None:
        log.error("%s: " + message, self._label, *args)

    def exception(self, message: str, *args: Any, **kwargs: Any) -> None:
        # kazoo's arguments may hold a request, and with it data; the traceback says enough.
        log.error("%s: kazoo failed: %s", self._label, message.partition(":")[0], exc_info=True)
