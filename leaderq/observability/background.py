"""A log handler that never waits for whoever reads the log.

Standard error may be a pipe that nobody empties: a log driver that hangs, a supervisor that has
stopped reading. A leader must renew its lease all the same, and a guardian must end its worker.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from contextlib import suppress
from typing import TextIO

from leaderq.clock import now_s
from leaderq.threads.service import Service

MOST_LINES = 10_000  # that may wait; later ones are dropped and counted
FLUSH_S = 1.0


class BackgroundHandler(logging.Handler):
    """Formats a record where it is made, and writes it to ``stream`` on a thread of its own.

    Guarantees: logging never blocks; lines keep their order; ``flush`` waits ``FLUSH_S`` at most.
    Not guaranteed: that the last lines before a SIGKILL are written.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__()
        self._stream = stream
        self._dropped = 0
        self._is_writing = False
        self._begin()

    def emit(self, record: logging.LogRecord) -> None:
        """Put the line of ``record`` in the queue."""
        try:
            line = self.format(record)
        except Exception:  # noqa: BLE001 - a wrong log call must not stop the work
            self.handleError(record)
            return
        if self._pid != os.getpid():
            self._begin()  # threads do not survive a fork
        if len(self._lines) >= MOST_LINES:
            self._dropped += 1
            return
        self._lines.append(line + "\n")
        self._service.wake()

    def flush(self) -> None:
        """Wait until what was logged is written, at most for ``FLUSH_S``."""
        end_s = now_s() + FLUSH_S
        while (self._lines or self._is_writing) and self._pid == os.getpid() and now_s() < end_s:
            time.sleep(0.001)

    def close(self) -> None:
        """Flush, and write no more."""
        self.flush()
        self._lines.clear()
        self._service.stop(timeout_s=0.0)
        super().close()

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lines: deque[str] = deque()
        self._service = Service.repeating("leaderq-log", self._write)
        self._service.start()

    def _write(self) -> None:
        self._is_writing = True
        while self._lines:
            lines = [self._lines.popleft() for _ in range(min(100, len(self._lines)))]
            if self._dropped:
                lines.append(f"log lines dropped, because nobody read them: {self._dropped}\n")
                self._dropped = 0
            with suppress(OSError, ValueError):  # closed: there is nowhere left to say so
                self._write_out("".join(lines))
        self._is_writing = False

    def _write_out(self, text: str) -> None:
        try:
            number = self._stream.fileno()
        except (OSError, ValueError, AttributeError):  # not a file: a test's
            self._stream.write(text)
            self._stream.flush()
            return
        # Past the stream and its lock, which the end of the interpreter would wait for.
        rest = text.encode(errors="backslashreplace")
        while rest:
            rest = rest[os.write(number, rest) :]
