"""A disk that is full when the test says so."""

from __future__ import annotations

import errno
from typing import Any

from leaderq.producing.journal.disk import Disk


class FullDisk(Disk):
    """A disk that takes nothing while ``is_full``."""

    is_full = False

    def write(self, fd: int, data: Any, offset: int) -> int:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        return super().write(fd, data, offset)
