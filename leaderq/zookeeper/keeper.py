"""Watches over a session's kazoo client, and has it replaced when it is beyond repair.

One thread, asleep while all is well; woken by every change of state. An outage, however long, is no reason: kazoo goes on
connecting, and the session may still stand at the servers. Reasons are: the connection thread has ended without our
asking (an exception inside kazoo, refused credentials); or there is no connection and no attempt to get one for a long
time.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import Protocol

log = logging.getLogger(__name__)
STUCK_S = 15.0
"""How long a client may go without an attempt to connect; attempts follow each other within seconds, but name servers may
be slow."""
BACKOFF_S = (0.5, 30.0)
CALM_S = 60.0


class Watched(Protocol):
    """What the keeper looks at."""

    ended: threading.Event

    @property
    def connected(self) -> bool: ...

    @property
    def attempts(self) -> int: ...

    @property
    def timeout_s(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Sight:
    """A client at one moment. ``quiet_s``: see :class:`Quiet`."""

    has_ended: bool
    is_connected: bool
    quiet_s: float
    stuck_after_s: float


def complaint(sight: Sight) -> str | None:
    """Why this client must be replaced, or ``None``; pure."""
    if sight.has_ended:
        return "its connection thread ended"
    if not sight.is_connected and sight.quiet_s > sight.stuck_after_s:
        return f"it made no attempt to connect for {sight.quiet_s:.0f} s"
    return None


def pause_s(replacements: int, chance: float) -> float:
    """Seconds to wait before the next replacement, after so many in a row; ``chance`` from 0 to 1 keeps a crowd apart;
    pure."""
    least, most = BACKOFF_S
    return 0.0 if replacements == 0 else min(most, least * 2.0 ** min(replacements - 1, 10)) * (0.5 + chance / 2)


class Quiet:
    """How long a client has been without a connection and without an attempt to get one; pure, but for what it remembers.

    The keeper sleeps while all is well, for hours: time in which nobody looked must not count as quiet.
    """

    def __init__(self) -> None:
        self._attempt: tuple[object, int] = (None, -1)
        self._was_connected = False
        self._since_s = 0.0

    def look(self, now_s: float, client: object, attempts: int, *, is_connected: bool) -> float:
        """Seconds of quiet by now."""
        attempt = (client, attempts)
        if is_connected or self._was_connected or attempt != self._attempt:
            self._since_s = now_s
        self._attempt, self._was_connected = attempt, is_connected
        return now_s - self._since_s

    def has_tried(self, client: object, attempts: int) -> bool:
        """Whether this client has made an attempt since the last look."""
        return (client, attempts) != self._attempt


class Keeper:
    """See the module."""

    def __init__(self, name: str, *, client: Callable[[], Watched | None], replace: Callable[[str], None]) -> None:
        self._client = client
        self._replace = replace
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._doubtful = False
        self._thread = threading.Thread(target=self._run, name=f"leaderq-{name}-keeper", daemon=True)
        self._quiet = Quiet()
        self._replaced: list[float] = []

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Stop watching; does not wait, since the keeper itself may be who stops it."""
        self._stopped.set()
        self._woken.set()

    def wake(self) -> None:
        """Something changed. From any thread; returns at once."""
        self._woken.set()

    def expect_attempt(self) -> None:
        """The connection was dropped: unless an attempt to connect follows, the client is stuck, whatever its state says."""
        self._doubtful = True
        self._woken.set()

    def _run(self) -> None:
        while not self._stopped.is_set():
            client = self._client()
            if client is None:
                return
            reason = complaint(self._look(client))
            if reason is not None:
                self._act(reason)
                continue
            calm = client.connected and not self._doubtful
            self._woken.wait(None if calm else STUCK_S / 5)
            self._woken.clear()

    def _look(self, client: Watched) -> Sight:
        attempts = client.attempts
        if self._quiet.has_tried(client, attempts):
            self._doubtful = False
        is_connected = client.connected and not self._doubtful
        quiet_s = self._quiet.look(monotonic(), client, attempts, is_connected=is_connected)
        return Sight(client.ended.is_set(), is_connected, quiet_s, max(STUCK_S, 2 * client.timeout_s))

    def _act(self, reason: str) -> None:
        now = monotonic()
        self._replaced = [at for at in self._replaced if now - at < CALM_S]
        if self._stopped.wait(pause_s(len(self._replaced), random.random())):
            return
        self._replaced.append(monotonic())
        self._doubtful = False
        try:
            self._replace(reason)
        except Exception:
            log.exception("the ZooKeeper client could not be replaced; trying again")
