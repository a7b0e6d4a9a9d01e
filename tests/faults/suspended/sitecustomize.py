"""A clock that stands still while the process does: that of a virtual machine that is suspended and
knows nothing of it.

On the path of a candidate's process, Python runs this before anything else. A leader that is frozen
under such a clock thaws in the belief that its lease still stands: nothing in its own process can
stop it, so what stops it must be the servers.
"""

from __future__ import annotations

import threading
import time

_LONGEST_PAUSE_S = 1.0
_TICK_S = 0.02
_real = time.clock_gettime


class _Clock:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen = _real(time.CLOCK_BOOTTIME)
        self._lost_s = 0.0

    def read(self, which: int) -> float:
        with self._lock:
            now = _real(time.CLOCK_BOOTTIME)
            if now - self._seen > _LONGEST_PAUSE_S:
                self._lost_s += now - self._seen
            self._seen = now
            return _real(which) - (self._lost_s if which == time.CLOCK_BOOTTIME else 0.0)

    def tick(self) -> None:
        while True:
            self.read(time.CLOCK_BOOTTIME)
            time.sleep(_TICK_S)


_clock = _Clock()
threading.Thread(target=_clock.tick, name="suspended-clock", daemon=True).start()
time.clock_gettime = _clock.read
