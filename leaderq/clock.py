"""The clock that leadership is measured on.

It is ``CLOCK_BOOTTIME`` where the system has it, because ``CLOCK_MONOTONIC`` stops while a host is
suspended, and a leader that wakes up must find its lease over. Both are the same for all processes
of a host, so the guardian and the worker can exchange readings.


Times that stand in znodes are those of the calendar: :func:`now_ms`.
"""

import time
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_s() -> float:
    """Seconds since the host started; never goes back. Counts suspension where the system can."""
    return time.clock_gettime(_CLOCK)


def now_ms() -> int:
    """Milliseconds since the epoch, by this host's calendar clock, which may be set."""
    return time.time_ns() // 1_000_000
