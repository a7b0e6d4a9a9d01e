"""The one clock that leadership is measured on.

``CLOCK_BOOTTIME`` where the system has it, since ``CLOCK_MONOTONIC`` stands still while a host is suspended: a leader waking
from suspension must find its lease over. Both are the same for all processes of a host, so the guardian and the worker may
exchange readings.
"""

from __future__ import annotations

import time
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def now_s() -> float:
    """Seconds since the host started; never goes back, and goes on through suspension where the system can tell."""
    return time.clock_gettime(_CLOCK)
