"""Items on standard output, so that it is known of each whether it was written.

Past Python's buffers, which would hold back what an interruption left over, and write it at the end after all. A pipe takes
:data:`PIPE_BUF` bytes at once or not at all, when it says that it is ready: so nothing waits while bytes are under way.
"""

from __future__ import annotations

import base64
import json
import os
import select
from collections.abc import Callable
from select import PIPE_BUF
from typing import TYPE_CHECKING

from leaderq.cli.queue.showing import item_json

if TYPE_CHECKING:
    from leaderq.cli.queue.stopping import Stopping
    from leaderq.queues.admin import Browsed
    from leaderq.queues.wire.names import QueueKind


class Outlet:
    """Writes to a file descriptor. A signal may prevent a piece, but not tear it: once begun it is written to its end, however long the
    reader takes, unless there is a second signal."""

    def __init__(self, fd: int, stopping: Stopping) -> None:
        self._fd = fd
        self._stopping = stopping

    def write(self, data: bytes) -> None:
        """Returns when it is out of our hands.

        :raises KeyboardInterrupt: a signal came, and nothing of this was written.
        :raises OSError: the reader is gone (``BrokenPipeError``), the disk is full.
        """
        with self._stopping.safely():
            self._await_room()
        sent = os.write(self._fd, data[:PIPE_BUF])
        while sent < len(data):
            self._await_room()
            sent += os.write(self._fd, data[sent : sent + PIPE_BUF])

    def _await_room(self) -> None:
        select.select([], [self._fd], [])


class ItemWriter:
    """Makes lines of znodes: as JSON one object each, else each of their values, ended by a line end or NUL."""

    def __init__(self, send: Callable[[bytes], None], *, as_json: bool, as_base64: bool, null: bool) -> None:
        self.kind: QueueKind | None = None
        self.ambiguous = 0
        """Values written so far that hold what ends a value, so that a reader will take them for several."""
        self._send = send
        self._as_json = as_json
        self._as_base64 = as_base64
        self._end = b"\0" if null else b"\n"

    def write(self, one: Browsed) -> None:
        """All of it or, if this raises, perhaps a part."""
        if self._as_json:
            self._send(json.dumps(item_json(one, self.kind), ensure_ascii=False).encode() + b"\n")
        elif one.items:
            self._send(b"".join(self._line(value) + self._end for value in one.items))

    def _line(self, value: bytes) -> bytes:
        if self._as_base64:
            return base64.b64encode(value)
        self.ambiguous += self._end in value
        return value
