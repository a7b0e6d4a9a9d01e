"""Kafka, or a part of it, does not answer: how long until the next attempt, what is said, and when the client is made anew."""

from __future__ import annotations

import logging

log = logging.getLogger(__name__)

TELL_AFTER_S = 2.0
REBUILD_AFTER_S = 30.0
REBUILD_JOINING_AFTER_S = 10.0
"""A request to join waits for its answer for minutes, on purpose; one whose answer was lost is best given up with its client.
Joining takes milliseconds, or 3 s for a group's very first member; where others in the group hold it up, a new client does no harm.
"""
_MIN_BACKOFF_S, MAX_BACKOFF_S = 0.05, 1.0


class Outage:
    """Counts one outage after the other; times are :func:`leaderq.clock.now_s`. Not thread-safe."""

    def __init__(self) -> None:
        self.not_before_s = 0.0
        self._since_s: float | None = None
        self._client_since_s = 0.0
        self._backoff_s = 0.0
        self._told = False

    def met(self, why: Exception, now_s: float, *, joining: bool) -> bool:
        """An attempt failed; gives whether the client has failed for so long that it should be made anew."""
        if self._since_s is None:
            self._since_s = self._client_since_s = now_s
        if not self._told and now_s - self._since_s > TELL_AFTER_S:
            self._told = True
            log.warning("Kafka is away (%s); the term goes on and tries again", why)
        self._backoff_s = min(MAX_BACKOFF_S, max(_MIN_BACKOFF_S, self._backoff_s * 2))
        self.not_before_s = now_s + self._backoff_s
        if now_s - self._client_since_s <= (REBUILD_JOINING_AFTER_S if joining else REBUILD_AFTER_S):
            return False
        self._client_since_s = now_s
        return True

    def over(self, now_s: float) -> None:
        """An attempt succeeded."""
        if self._told and self._since_s is not None:
            log.info("Kafka answers again, after %.1f s", now_s - self._since_s)
        self._since_s, self._told, self._backoff_s = None, False, 0.0
