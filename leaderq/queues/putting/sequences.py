"""Watches how near the numbers of a queue's znodes have come to their end (pure but for the log).

The server numbers the znodes made below one parent with a signed 32-bit counter that never goes back. Past 2^31 - 1 names collide or
lose their order. Deleting the empty queue and making it again starts at 0, and so does a new shard.
"""

from __future__ import annotations

import logging

from leaderq.queues.wire.names import LAST_SEQUENCE, sequence_of
from leaderq.zookeeper.paths import name_of

log = logging.getLogger(__name__)
WARN_FROM = LAST_SEQUENCE // 10 * 9
"""From here on there is a warning, once per queue object."""
_EVERY = 1024


class Sequences:
    """Looks at one of so many paths: the numbers are too far apart for it to matter."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen = 0
        self.has_warned = False

    def saw(self, made: str) -> None:
        """A znode was made at this path."""
        self._seen += 1
        if self._seen % _EVERY != 1 or self.has_warned:
            return
        number = sequence_of(name_of(made))
        if number < 0 or number >= WARN_FROM:
            self.has_warned = True
            log.warning(
                "queue %s has come to number %d of %d; beyond that its order is lost: drain it, and put into a new path or shard",
                self._path,
                number,
                LAST_SEQUENCE,
            )
