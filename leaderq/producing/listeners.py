"""What a buffered producer tells listeners, futures and the log: one call at a time, in order, on
whichever thread has news; never under the lock of the buffer.

A listener that is slow, fails, or uses the producer stops nobody: while a listener is called, other
threads leave their news and go on. News beyond a bound is dropped. Nothing here waits for a lock,
so even a finalizer or a signal handler may leave news.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from leaderq.base.arguments import require_finished
from leaderq.base.timeouts import Seldom
from leaderq.errors import told
from leaderq.producing.account import LossReason, Lost
from leaderq.threads import Listeners, primitives

log = logging.getLogger(__name__)

News = Callable[[], object]
"""A call to be made: of a listener, of the log, of a future."""
OnDurable = Callable[["BaseException | None"], object]
"""Called once, on the journal's thread: with ``None`` when the request is as durable as the policy
says, else with the error."""
_KEPT = 10_000


def news_of(producer: str) -> Listeners[News]:
    """The news of a producer."""
    news: Listeners[News] = Listeners(producer, most=_KEPT)
    news.add(lambda call: require_finished(call(), "a listener"))
    return news


class LossLog:
    """Logs lost requests: the first one of each reason at once, with key and error; others of that
    reason together, every ten seconds. Guarded by the buffer's lock, except where it says
    otherwise.
    """

    def __init__(self, name: str, news: Listeners[News]) -> None:
        self._name, self._news, self._seldom = name, news, Seldom()
        self._lost: dict[LossReason, tuple[int, Lost]] = {}

    def note(self, lost: Lost) -> None:
        """Have a lost request logged, once."""
        self._lost[lost.reason] = self._lost.get(lost.reason, (0, lost))[0] + 1, lost
        if self._seldom.is_time(lost.reason):
            self._news.put(partial(self._write, lost.reason), is_owed=True)

    def write_all(self) -> None:
        """Log all losses that are not logged yet; called without any lock."""
        for reason in list(self._lost):
            self._news.put(partial(self._write, reason), is_owed=True)
        self._news.deliver()

    def _write(self, reason: LossReason) -> None:
        count, lost = self._lost.pop(reason, (0, None))
        if lost is not None:
            log.error(
                "requests lost producer=%s reason=%r count=%d key=%r error=%s",
                self._name,
                reason.value,
                count,
                lost.key,
                None if lost.error is None else told(lost.error),
            )


def resolve(
    waiter: primitives.Future[Any] | None, value: Any = None, error: BaseException | None = None
) -> None:
    """Set a future's result or error, unless it is done or cancelled. If this call is interrupted,
    it may be made again.
    """
    if waiter is None or waiter.done():
        return
    try:
        if waiter.running() or waiter.set_running_or_notify_cancel():
            if error is None:
                waiter.set_result(value)
            else:
                waiter.set_exception(error)
    except (Exception, SystemExit):  # a future lets a SystemExit of a callback added to it pass
        log.exception("the callback of a request's future failed")
