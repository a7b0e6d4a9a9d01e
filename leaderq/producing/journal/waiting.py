"""Callers who wait for something that comes about under a lock.

A ``threading.Condition`` gives its lock up and takes it again within the wait. Ctrl-C between the two, in the main thread,
raises while the lock is free, or another's; the ``with`` around the wait then lets go of what it does not hold. So who may
be called by the main thread joins under the lock, leaves its ``with``, waits for the signal alone, and looks again:
whatever is interrupted, no lock is in question. One who is interrupted stays here until the next ``wake``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress

from leaderq.clock import now_s


class Signal:
    """Wakes one caller. A lock and no ``threading.Event``: that has a lock of its own, which Ctrl-C in a waiting main thread may
    leave taken for ever, and whoever then sets it hangs."""

    __slots__ = ("_gate",)

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()

    def give(self) -> None:
        """Once."""
        self._gate.release()

    def wait(self, timeout_s: float) -> bool:
        """Whether it was given in time."""
        return self._gate.acquire(timeout=min(timeout_s, threading.TIMEOUT_MAX))


class Waiting:
    """See the module. Not synchronised: guarded by the lock of what is waited for."""

    __slots__ = ("_signals",)

    def __init__(self) -> None:
        self._signals: dict[Signal, None] = {}

    def __len__(self) -> int:
        return len(self._signals)

    def join(self) -> Signal:
        """What one caller waits for, once, without the lock."""
        signal = Signal()
        self._signals[signal] = None
        return signal

    def leave(self, signal: Signal) -> None:
        """It is not waited for any more, given or not."""
        self._signals.pop(signal, None)

    def until(self, lock: threading.Lock, is_so: Callable[[], bool], timeout_s: float) -> None:
        """Without ``lock``: wait until ``is_so``, which is asked with it, first at once and then at each ``wake``; or until
        the time is over."""
        give_up_s = now_s() + timeout_s
        while True:
            with lock:
                if is_so() or (left_s := give_up_s - now_s()) <= 0:
                    return
                signal = self.join()
            if not signal.wait(left_s):
                with lock:
                    self.leave(signal)

    def wake(self) -> None:
        """All who wait now."""
        if self._signals:
            for signal in tuple(self._signals):
                with suppress(RuntimeError):  # given before: by a wake that was interrupted
                    signal.give()
            self._signals.clear()
