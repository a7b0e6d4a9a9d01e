"""Repeats a request until the servers answer it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from leaderq.base import clock
from leaderq.errors import ConnectionLost, SessionExpired
from leaderq.threads import Backoff, Retry

T = TypeVar("T")
ITEM_RETRY: Final = Retry(attempts=10, first_s=0.1, most_s=60.0, jitter=0.2)
"""How items of queues, and messages, are tried again unless a queue says otherwise."""
PATIENCE_S = 30.0
"""How long an operator's request outlasts an outage."""
_AGAIN = Retry(first_s=0.05, most_s=0.5)


def retry_until_connected(
    ask: Callable[[], T],
    patience_s: float | None = None,
    *,
    check: Callable[[], object] = lambda: None,
) -> T:
    """Return what ``ask()`` returns; call it again while the servers are unreachable. It must do no
    harm when it is called twice. ``check()`` is called before each try; it raises if nobody waits
    any more.

    :raises ConnectionLost: there was no answer within ``patience_s`` seconds (:data:`PATIENCE_S`).
    """
    deadline = clock.now_s() + (PATIENCE_S if patience_s is None else patience_s)
    backoff = Backoff(_AGAIN)
    while True:
        check()
        try:
            return ask()
        except (ConnectionLost, SessionExpired):
            left_s = deadline - clock.now_s()
            if left_s <= 0:
                raise
            clock.sleep(min(left_s, backoff.next_s()))  # without a connection a try fails at once
