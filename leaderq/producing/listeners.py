"""Tells listeners and the log, one call at a time and in order, on whichever thread has news; never
under the lock of the buffer.

A listener that is slow, fails, or itself uses the producer stops nobody: while one is told, other
threads leave their news and go on. News beyond a bound are counted as untold. Nothing here waits
for a lock, so a finalizer or a signal handler may leave news too.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from leaderq import clock
from leaderq.errors import told
from leaderq.plain import require_finished
from leaderq.producing.account import LossReason, Lost
from leaderq.threads import primitives

log = logging.getLogger(__name__)

_KEPT = 10_000
_QUIET_S = 10.0


class ListenerDispatcher:
    """See the module."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._news: deque[Callable[[], object]] = deque()
        self._telling = primitives.Lock()
        self.untold = 0
        self._lost: dict[LossReason, tuple[int, Lost]] = {}
        self._next_s: dict[LossReason, float] = {}
        self._is_due = False

    def note(self, news: Callable[[], object], *, is_owed: bool = False) -> None:
        """Leave news, to be told in any case if ``is_owed``; may be called under any lock."""
        if is_owed or len(self._news) < _KEPT:
            self._news.append(news)
        else:
            self.untold += 1

    def tell(self) -> None:
        """Tell waiting news, unless another thread is doing that; called without any lock."""
        while self._news and self._telling.acquire(blocking=False):
            try:
                while self._news:
                    self._call(self._news.popleft())
            finally:
                self._telling.release()

    def note_loss(self, lost: Lost) -> None:
        """Have a lost request logged, once: the first of a reason at once with key and error,
        others within ten seconds together. Called under the buffer's lock.
        """
        if lost.reason is LossReason.SKIPPED:
            return
        self._lost[lost.reason] = self._lost.get(lost.reason, (0, lost))[0] + 1, lost
        if not self._is_due and clock.now_s() >= self._next_s.get(lost.reason, 0.0):
            self._is_due = True
            self.note(self._log_losses, is_owed=True)

    def tell_losses(self) -> None:
        """Log all losses that are not logged yet."""
        self._next_s.clear()
        self.note(self._log_losses, is_owed=True)
        self.tell()

    def _log_losses(self) -> None:
        self._is_due = False
        now = clock.now_s()
        for reason in list(self._lost):
            if now < self._next_s.get(reason, 0.0):
                continue
            self._next_s[reason] = now + _QUIET_S
            count, lost = self._lost.pop(reason)
            log.error(
                "requests lost producer=%s reason=%r count=%d key=%r error=%s",
                self._name,
                reason.value,
                count,
                lost.key,
                None if lost.error is None else told(lost.error),
            )

    def _call(self, news: Callable[[], object]) -> None:
        try:
            require_finished(news(), "a listener")
        except KeyboardInterrupt:  # of a caller in the main thread
            raise
        except BaseException:  # also SystemExit: it may be the sender's thread, which must go on
            log.exception("listener of a producer failed producer=%s", self._name)


def resolve(
    waiter: primitives.Future[Any] | None, value: Any = None, error: BaseException | None = None
) -> None:
    """Set a future's result, unless it was cancelled."""
    try:
        if waiter is not None and waiter.set_running_or_notify_cancel():
            if error is None:
                waiter.set_result(value)
            else:
                waiter.set_exception(error)
    except KeyboardInterrupt:  # of a caller in the main thread
        raise
    except BaseException:  # of a callback added to it; a future lets a SystemExit pass, say
        log.exception("the callback of a request's future failed")
