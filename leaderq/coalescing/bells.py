"""How a request that had to wait is told that something has become of it.

A bell is rung outside of all locks, by whoever brought the change about, usually the thread that dequeued the head. It may
be rung more than once, and by two threads at a time: a thread that is interrupted (Ctrl-C) between the change and the ring
leaves the ring to the next one that passes, which is better than a key that nobody works on any more.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from leaderq.coalescing.token import Token

log = logging.getLogger("leaderq.coalescing")

Call = Callable[["Token[Any]"], object]


class Bell(Protocol):
    """Tells that a token is not pending any more."""

    def ring(self, token: Token[Any]) -> None:
        """Tell it; no ``Exception`` leaves here. If it cannot be told, the token leaves the line."""


def tell(call: Call, token: Token[Any]) -> None:
    """Call this with the token; if that fails, nobody will ever dequeue it, so it is done here."""
    try:
        call(token)
    except BaseException as exc:
        token.stripe.leave(token)
        if not isinstance(exc, Exception):
            raise
        log.exception("what was to be called with %r failed; the key is given to the next", token)


class ThreadBell:
    """Wakes the one thread that waits; a lock is all it takes, and waking costs no more than its release."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def ring(self, token: Token[Any]) -> None:
        """Wake it; a ring before the wait is not lost."""
        if self._lock.locked():
            try:
                self._lock.release()
            except RuntimeError:
                return  # another thread rang between the two lines

    def wait(self, timeout_s: float | None) -> None:
        """Until it is rung, or the time is over."""
        self._lock.acquire(timeout=-1 if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX))


class CallBell:
    """Calls a function once, with the token."""

    __slots__ = ("_call", "_once")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._once = threading.Lock()

    def ring(self, token: Token[Any]) -> None:
        """Call it, unless that was done."""
        if self._once.acquire(blocking=False):
            _calls.make(self._call, token)


class _Calls(threading.local):
    """Calls that lead to further ones (a promoted request that dequeues at once promotes the next) are made one after the
    other in a loop, for the stack is shorter than a line of waiting requests may be."""

    def __init__(self) -> None:
        self.pending: deque[tuple[Call, Token[Any]]] = deque()
        self.is_under_way = False

    def make(self, call: Call, token: Token[Any]) -> None:
        """Make this call: now, or, within another one, after it."""
        self.pending.append((call, token))
        if self.is_under_way:
            return
        self.is_under_way = True
        try:
            while self.pending:
                tell(*self.pending.popleft())
        finally:
            self.is_under_way = False
            if self.pending:  # only after Ctrl-C or the like
                self.make(*self.pending.popleft())


_calls = _Calls()
