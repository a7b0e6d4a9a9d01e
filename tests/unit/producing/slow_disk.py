"""A disk that is slow when the test says so."""

from __future__ import annotations

import threading
from typing import Any

from leaderq.producing.journal.disk import Disk


class SlowDisk(Disk):
    """A disk whose writes wait while ``goes_on`` is not set."""

    def __init__(self) -> None:
        super().__init__()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def write(self, fd: int, data: Any, offset: int) -> int:
        self.goes_on.wait(60)
        return super().write(fd, data, offset)
