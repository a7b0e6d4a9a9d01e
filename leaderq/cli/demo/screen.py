"""What the demo shows: lines that stay and, on a terminal, a few below them that are drawn anew.

Without a terminal there are no control characters, and the live part becomes a plain line every two seconds.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Sequence
from typing import TextIO

import click

from leaderq.clock import now_s

_PLAIN_INTERVAL_S = 2.0


class Screen:
    """Writes to ``stream`` (default: standard output). Thread-safe."""

    def __init__(self, stream: TextIO | None = None, *, live: bool | None = None) -> None:
        self._stream = stream or sys.stdout
        self._live = (self._stream.isatty() and os.environ.get("TERM", "dumb") != "dumb") if live is None else live
        self._drawn = 0
        self._last: Sequence[str] = ()
        self._next_plain_s = 0.0
        self._began_s = now_s()
        self._lock = threading.Lock()

    def tell(self, line: str) -> None:
        """A line that stays, with the time since the start of the demo."""
        self.write(f"{now_s() - self._began_s:6.1f} s  {line}")

    def write(self, text: str) -> None:
        """Text that stays."""
        with self._lock:
            self._erase()
            click.echo(text, file=self._stream, color=self._live)
            self._draw(self._last)

    def show(self, lines: Sequence[str]) -> None:
        """The live part; replaces what was shown before."""
        with self._lock:
            if self._live:
                self._erase()
                self._draw(lines)
            elif lines and now_s() >= self._next_plain_s:
                self._next_plain_s = now_s() + _PLAIN_INTERVAL_S
                click.echo(f"{now_s() - self._began_s:6.1f} s  " + "; ".join(lines), file=self._stream)
            self._last = lines if self._live else ()

    def _erase(self) -> None:
        if self._drawn:
            self._stream.write(f"\x1b[{self._drawn}F\x1b[J")
            self._drawn = 0

    def _draw(self, lines: Sequence[str]) -> None:
        if not self._live:
            self._stream.flush()
            return
        # A line that wraps would take two, and be erased by half.
        width = shutil.get_terminal_size().columns - 1
        for line in lines:
            self._stream.write(line[:width] + "\n")
        self._drawn = len(lines)
        self._stream.flush()
