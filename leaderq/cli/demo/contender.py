"""One candidate of the demo: ``leaderq run`` as its user would start it, its JSON log in a file.

It does not outlive the demo, whatever ends the demo: a watcher in the candidate's process group holds a pipe whose other end only
the demo has, and asks the guardian to leave when that end closes. Asked three times, a guardian kills its worker, so nothing stays
behind even if the worker is stopped or stuck.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

_LAUNCH: Final = (
    "exec 3<&0; (trap '' HUP INT TERM; read -r _ <&3; for _ in 1 2 3; do kill -TERM $$ || exit; sleep 0.5; done)"
    ' >/dev/null 2>&1 & exec 3<&- </dev/null; exec "$@"'
)


@dataclass(frozen=True)
class Said:
    """One line of a candidate's log: an event and when it was (seconds since the epoch)."""

    event: str
    at: float
    fields: Mapping[str, Any]


def events_in(lines: str) -> list[Said]:
    """The events in a JSON log; lines that are something else, or half written, are left out (pure)."""
    found = []
    for text in lines.splitlines():
        try:
            line = json.loads(text)
            found.append(Said(line["event"], datetime.fromisoformat(line["time"].replace("Z", "+00:00")).timestamp(), line))
        except (ValueError, KeyError, TypeError):
            continue  # a traceback, a warning of Python, the last line in the making
    return found


class Contender:
    """A candidate as a process. ``id`` is its name, ``log_path`` where it logs; ``arguments`` go behind ``leaderq run``."""

    def __init__(self, id: str, *, folder: Path, arguments: list[str], environment: Mapping[str, str]) -> None:
        self.id = id
        self.log_path = folder / f"{id}.log"
        self._folder = folder
        self._command = [sys.executable, "-m", "leaderq", "run", *arguments, "--id", id]
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._leash = -1

    def start(self) -> None:
        """Start it, or start it anew after its end; the log goes on."""
        reading, self._leash = os.pipe()
        try:
            with self.log_path.open("ab") as log:
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", _LAUNCH, "leaderq-contender", *self._command],
                    stdin=reading, stdout=log, stderr=log, cwd=self._folder, env=self._environment, start_new_session=True,
                )  # fmt: skip
        finally:
            os.close(reading)

    @property
    def exit_code(self) -> int | None:
        """``None`` while it runs; negative is the signal that ended it."""
        return self._process.poll() if self._process is not None else None

    def said(self, event: str, **fields: Any) -> list[Said]:
        """What it logged so far for ``event`` with these values."""
        log = self.log_path.read_text(errors="replace") if self.log_path.exists() else ""
        return [
            line
            for line in events_in(log)
            if line.event == event and all(line.fields.get(key) == value for key, value in fields.items())
        ]

    def last_words(self) -> str:
        """The last thing it logged, for an error message."""
        lines = self.log_path.read_text(errors="replace").splitlines() if self.log_path.exists() else []
        try:
            return str(json.loads(lines[-1])["message"])
        except (IndexError, ValueError, KeyError, TypeError):
            return lines[-1] if lines else "nothing"

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; gives whether it came, and if so forgets the process."""
        if self._process is not None:
            try:
                self._process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                return False
        self._let_go()
        return True

    def ask_to_leave(self) -> None:
        """SIGTERM to the guardian, which passes it on; the third kills the worker."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> None:
        """Make sure that it is gone."""
        if self._process is None or self.wait(0):
            return
        for _ in range(3):
            self.ask_to_leave()
            if self.wait(1.0):
                return
        # The guardian itself is stuck; its worker was killed by it or goes with the servers.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self.wait(5.0)

    def _let_go(self) -> None:
        if self._process is not None and self._leash >= 0:
            # The watcher waits in the group that the candidate led; it has nothing left to watch.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            os.close(self._leash)
            self._leash = -1
