"""How a request that had to wait is told that something has become of it.

A bell is rung outside of all locks, by whoever brought the change about, usually the thread that dequeued the head. It may
be rung more than once, and by two threads at a time: a thread that is interrupted (Ctrl-C) between the change and the ring
leaves the ring to the next one that passes, which is better than a key that nobody works on any more.

Nor need the change have come about yet: a thread that passes finds the bell of a change that another one, under the lock,
is in the midst of. Whoever was woken by that looks again; a call cannot be made again, so it waits for the change.
"""

from __future__ import annotations

import logging
import threading
import weakref
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
    """Calls a function once, with the token.

    An ``Exception`` that it raises is logged, and the token leaves the line, since nobody else would dequeue it. A
    ``KeyboardInterrupt`` or the like goes to whoever rang, and the token stays: the call may have given it to somebody who
    works with it.
    """

    __slots__ = ("_call", "_lock", "is_begun")

    def __init__(self, call: Call) -> None:
        self._call = call
        self._lock = threading.Lock()
        self.is_begun = False

    def ring(self, token: Token[Any]) -> None:
        """Call it, unless that was done, or what it is to be told was interrupted before it came about: then it will be rung
        again."""
        if self.is_begun:
            return
        if not token.stripe.is_pending(token):
            _calls.make(self, token)

    def call(self, token: Token[Any]) -> None:
        """Do it, unless another thread was faster."""
        if self.is_begun:
            return
        try:
            with (
                self._lock
            ):  # until the end, for an interrupt strikes after a lock is let go; whoever rings meanwhile sees is_begun
                if not self.is_begun:
                    self.is_begun = True
                    self._call(token)
        except Exception:
            log.exception("what was to be called with %r failed; the key is given to the next", token)
            token.stripe.leave(token)


class _UnderWay:
    """A loop that makes calls. It is under way as long as this says so, and lives: an interrupt may strike before it can say
    otherwise."""

    __slots__ = ("__weakref__", "is_over")

    def __init__(self) -> None:
        self.is_over = False


class _Calls(threading.local):
    """Calls that lead to further ones (a promoted request that dequeues at once promotes the next) are made one after the
    other in a loop, for the stack is shorter than a line of waiting requests may be."""

    def __init__(self) -> None:
        self._to_make: deque[tuple[CallBell, Token[Any]]] = deque()
        self._under_way: weakref.ref[_UnderWay] | None = None

    def make(self, bell: CallBell, token: Token[Any]) -> None:
        """Make this call: now, or, within another one, after it."""
        self._to_make.append((bell, token))
        current = self._under_way() if self._under_way is not None else None
        if current is not None and not current.is_over:
            return
        under_way = _UnderWay()
        try:
            self._under_way = weakref.ref(under_way)
            while self._to_make:
                following, whose = self._to_make[0]
                following.call(whose)
                self._to_make.popleft()
        finally:
            under_way.is_over = True  # the traceback of an interrupt may keep it alive
            if self._to_make:
                self.make(*self._to_make.popleft())


_calls = _Calls()
