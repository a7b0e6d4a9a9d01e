"""Tells listeners and the log, one call at a time and in order, on whichever thread has news; never
under the lock of the buffer.

A listener that is slow, fails, or itself uses the producer stops nobody: while one is told, other
threads leave their news and go on. News beyond a bound are counted as untold; the account stays
exact without them. Nothing here waits for a lock, so a finalizer or a signal handler may leave
news too.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

log = logging.getLogger(__name__)

_KEPT = 10_000


class ListenerDispatcher:
    """See the module."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._news: deque[Callable[[], object]] = deque()
        self._telling = threading.Lock()
        self.untold = 0

    def note(self, news: Callable[[], object]) -> None:
        """Leave news; may be called under any lock."""
        if len(self._news) >= _KEPT:
            self.untold += 1
            return
        self._news.append(news)

    def owe(self, news: Callable[[], object]) -> None:
        """Leave news that must be told in any case; may be called under any lock."""
        self._news.append(news)

    def tell(self) -> None:
        """Tell what there is, unless another thread is at it; called without any lock."""
        while self._news and self._telling.acquire(blocking=False):
            try:
                while self._news:
                    self._call(self._news.popleft())
            finally:
                self._telling.release()

    def _call(self, news: Callable[[], object]) -> None:
        try:
            news()
        except KeyboardInterrupt:  # of a caller in the main thread
            raise
        except BaseException:  # also SystemExit: it may be the sender's thread, which must go on
            log.exception("producer %s: a listener failed", self._name)


def resolve(waiter: Future[Any], value: Any = None, error: BaseException | None = None) -> None:
    """Tell whoever waits, unless that was cancelled."""
    try:
        if waiter.set_running_or_notify_cancel():
            if error is None:
                waiter.set_result(value)
            else:
                waiter.set_exception(error)
    except KeyboardInterrupt:  # of a caller in the main thread
        raise
    except BaseException:  # of a callback added to it; a future lets a SystemExit pass, say
        log.exception("the callback of a request's future failed")
