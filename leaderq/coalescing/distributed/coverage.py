"""Covers requests that were declined in this process, if the waiter they relied on never begins.

Who is authoritative: the waiter's token in ZooKeeper. A waiter writes to it when its run begins,
and it vanishes with the waiter. So whoever was declined sets one watch on it: if it *changes*
first, a run has begun after the declined request came; if it is *deleted* first, the waiter gave
up or died, and this process asks for the key itself, and does the work by ``cover(key)``.

States of a key here: watched -> covered, or owed -> covered (by ``cover``, or by relying on another
waiter: watched again).

What happens on each failure: the connection breaks: the token is looked at again, and owed if it is
gone; no answer, no turn in time: tried again, later each time; ``cover`` raises: logged, because
the run began; this process dies: what was declined in it is gone with it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from leaderq.coalescing.distributed.slots import has_begun
from leaderq.errors import CoordinatorClosed, LeaderqError, NoNode, SessionClosed
from leaderq.threads import Backoff, BackoffPolicy, Service
from leaderq.zookeeper import Session, WatchEvent, WatchKind

log = logging.getLogger(__name__)

_AGAIN = BackoffPolicy(first_s=0.1, most_s=5.0)


class Coverage:
    """See the module. ``run(key)`` asks for a key, and does its work unless it is declined."""

    def __init__(self, session: Session, run: Callable[[str | bytes], object]) -> None:
        self._session = session
        self._run = run
        self._lock = threading.Lock()
        self._watched: dict[str, str | bytes] = {}
        self._unknown: set[str] = set()
        self._owed: dict[str | bytes, None] = {}
        self._backoff = Backoff(_AGAIN)
        self._service = Service.repeating("leaderq-coalescing-cover", self._step)

    @property
    def is_idle(self) -> bool:
        """Whether all that was declined so far is covered."""
        return not (self._watched or self._owed)

    def rely_on(self, key: str | bytes, token: str) -> None:
        """A request for ``key`` was declined because the one with this token waits."""
        with self._lock:
            if token in self._watched:
                return
            self._watched[token] = key
        self._look(token)

    def stop(self, timeout_s: float | None) -> None:
        """Cover nothing more."""
        with self._lock:
            self._watched.clear()
            self._owed.clear()
        self._service.stop(timeout_s)

    def _look(self, token: str) -> None:
        answer = self._session.get_async(token, watch=partial(self._on_watch, token))
        answer.add_done_callback(partial(self._looked, token))

    def _looked(self, token: str, answer: Future[tuple[bytes, Any]]) -> None:
        error = answer.exception()
        if isinstance(error, NoNode):
            self._note_owed(token)
        elif isinstance(error, SessionClosed) or (not error and has_begun(answer.result()[0])):
            self._forget(token)
        elif error is not None:
            self._look_later(token)

    def _on_watch(self, token: str, event: WatchEvent) -> None:
        if event.kind is WatchKind.DELETED:
            self._note_owed(token)
        elif event.kind is WatchKind.CHANGED:
            self._forget(token)
        else:
            self._look_later(token)

    def _look_later(self, token: str) -> None:
        with self._lock:
            self._unknown.add(token)
        self._wake()

    def _forget(self, token: str) -> None:
        with self._lock:
            self._watched.pop(token, None)
            self._unknown.discard(token)

    def _note_owed(self, token: str) -> None:
        with self._lock:
            if token not in self._watched:
                return  # it is known already
            self._owed[self._watched.pop(token)] = None
            self._unknown.discard(token)
        self._wake()

    def _wake(self) -> None:
        self._service.start()
        self._service.wake()

    def _step(self) -> float | None:
        with self._lock:
            unknown, self._unknown = self._unknown, set()
            unknown &= self._watched.keys()
            key = next(iter(self._owed), None)
        for token in unknown:
            self._look(token)
        if key is None:
            return self._backoff.next_s() if unknown else None
        if not self._has_covered(key):
            return self._backoff.next_s()
        self._backoff.reset()
        with self._lock:
            self._owed.pop(key, None)
            return 0.0 if self._owed else None

    def _has_covered(self, key: str | bytes) -> bool:
        """Try to; return whether the key is owed no more."""
        try:
            self._run(key)
        except (CoordinatorClosed, SessionClosed):
            return True
        except LeaderqError as exc:
            log.info("key not covered yet, trying again key=%r error=%s", key, exc)
            return False
        return True
