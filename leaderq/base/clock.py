"""Time: the one place where leaderq takes it from, and the clock that leadership is measured on.

That clock, :func:`now_s`, is ``CLOCK_BOOTTIME`` where the system has it, because
``CLOCK_MONOTONIC`` stops while a host is suspended, and a leader that wakes up must find its lease
over. Both are the same for all processes of a host, so guardian and worker can exchange readings.

Times that stand in znodes are those of the calendar: :func:`now_ms`, :func:`calendar_s`.

A simulation replaces the attributes of this module by its own time; so they are looked up late, by
attribute: ``clock.now_s()``, never ``from leaderq.base.clock import now_s``, and never when a
module is imported or as the default of a parameter. ruff refuses the originals elsewhere in
``leaderq``.
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


calendar_s = time.time
"""Seconds since the epoch, by this host's calendar clock, which may be set."""

awake_s = time.monotonic
"""Seconds that the host was awake; never goes back, and stops while it is suspended. For waits that
the standard library ends by the same clock, never for leases.
"""

sleep = time.sleep
"""Do nothing for so many seconds, of :func:`awake_s`."""
