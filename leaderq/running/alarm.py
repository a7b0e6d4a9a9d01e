"""An alarm for a selector, which also goes off in time if the host was suspended meanwhile.

The clock by which a selector or a lock waits stands still while the host is suspended; a lease goes
on. Without an alarm, a guardian would notice after a suspension only with the next report of its
worker, a twenty-fourth of the session time-out later (half a second at most).
"""

from __future__ import annotations

import ctypes
import os
import time
from contextlib import suppress

_TFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_TFD_TIMER_ABSTIME = 1


class _Timer(ctypes.Structure):
    """``struct itimerspec``: an interval, which is not used, and a time; 0 switches the
    timer off.
    """

    _fields_ = [(name, ctypes.c_long) for name in ("every_s", "every_ns", "s", "ns")]


class Alarm:
    """A file descriptor that becomes readable at the time that :meth:`set` was last called with, on
    ``CLOCK_BOOTTIME``.

    Give ``fileno`` to a selector. If it is ``None``, this system has no such alarm, and the caller
    must also look at the clock.
    """

    def __init__(self) -> None:
        self.fileno: int | None = None
        self._set_s: float | None = None
        with suppress(AttributeError, OSError):  # not on Linux
            self._libc = ctypes.CDLL(None)
            number = self._libc.timerfd_create(time.CLOCK_BOOTTIME, _TFD_FLAGS)
            self.fileno = number if number >= 0 else None

    def set(self, at_s: float | None) -> None:
        """Become readable at ``at_s``, and not before; ``None``: never."""
        if self.fileno is None or at_s == self._set_s:
            return
        self._set_s = at_s
        ns = 0 if at_s is None else max(1, int(at_s * 1e9))
        timer = _Timer(0, 0, ns // 10**9, ns % 10**9)
        self._libc.timerfd_settime(self.fileno, _TFD_TIMER_ABSTIME, ctypes.byref(timer), None)

    def close(self) -> None:
        if self.fileno is not None:
            os.close(self.fileno)
            self.fileno = None
