"""A candidate as a real process: ``leaderq run``, started as a user would, with JSON logs.

A thread reads the logs as they come, so a test can wait for what the candidate *says*. Signals go
to the guardian (:attr:`pid`) or to the worker (:attr:`worker_pid`), which does the work.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from leaderq.running.descendants import began_of, children_of, stat_of
from leaderq.testing.waiting import eventually, patience


class CandidateProcess:
    """``leaderq run TARGET`` as a process; a context manager. With ``command``, it is ``leaderq
    lead`` with that command, and ``target`` is the name of the career.

    ``target`` is ``module:Class``, looked for in ``cwd``. ``arguments`` are further options;
    ``environment`` is added to this process's own; ``under`` is a command that runs the process,
    such as ``unshare``. ``lines`` holds the lines logged so far, as objects; a line that is not
    JSON is under ``message``.
    """

    def __init__(
        self,
        target: str,
        *,
        id: str,
        zookeeper: str,
        kafka: str | None = None,
        cwd: Path | str = ".",
        session_timeout_s: float = 4.0,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        under: Sequence[str] = (),
        command: Sequence[str] = (),
    ) -> None:
        self.id = id
        self.lines: list[dict[str, Any]] = []
        verb = ["lead", "--career", target] if command else ["run", target]
        self._command = [*under, sys.executable, "-m", "leaderq", *verb]
        self._command += ["--id", id, "--zookeeper", zookeeper]
        self._command += ["--session-timeout-s", str(session_timeout_s)]
        self._command += ["--log-format", "json", *arguments]
        if kafka is not None:
            self._command += ["--kafka", kafka]
        if command:
            self._command += ["--", *command]
        self._cwd = str(cwd)
        self._environment = {**os.environ, **(environment or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: threading.Thread | None = None

    def start(self) -> CandidateProcess:
        """Start the process, unless it runs; return without waiting for anything."""
        if self.alive:
            return self
        self._process = subprocess.Popen(
            self._command,
            cwd=self._cwd,
            env=self._environment,
            stderr=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
        )
        name = f"leaderq-log-of-{self.id}"
        self._reader = threading.Thread(target=self._read, name=name, daemon=True)
        self._reader.start()
        return self

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process that was started: the guardian, or with ``--no-guardian`` the worker."""
        if self._process is None:
            raise RuntimeError(f"candidate {self.id!r} was not started; call start() first")
        return self._process

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def worker_pid(self) -> int:
        """The process id of the guardian's first child or, without a guardian, of the process. The
        others are orphans that the guardian has adopted. Linux only.
        """
        return min(children_of(self.pid), default=self.pid, key=_began)

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def said(self, event: str, **fields: Any) -> list[dict[str, Any]]:
        """The lines logged so far for ``event`` whose fields have these values."""
        wanted = {"event": event, **fields}
        return [
            line
            for line in list(self.lines)
            if all(line.get(name) == value for name, value in wanted.items())
        ]

    def wait_for(
        self, event: str, *, timeout_s: float = 60.0, count: int = 1, **fields: Any
    ) -> dict[str, Any]:
        """Wait until there are ``count`` lines for ``event``; return the newest one.

        :raises AssertionError: there are not ``count`` within ``timeout_s`` (times the patience);
            it has the last lines.
        """
        try:
            said = eventually(lambda: self.said(event, **fields)[count - 1 :], timeout_s=timeout_s)
            return said[-1]
        except AssertionError as exc:
            last = "\n".join(str(line) for line in self.lines[-15:])
            raise AssertionError(
                f"{self.id}: no {event} {fields or ''} within {timeout_s:g} s; it logged"
                f" last:\n{last}"
            ) from exc

    def signal_worker(self, number: signal.Signals) -> None:
        """Send a signal to the worker: SIGKILL, SIGSTOP, SIGCONT."""
        os.kill(self.worker_pid, number)

    def terminate(self) -> None:
        """Ask the process to wind up (SIGTERM), as a supervisor does."""
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout_s: float = 60.0) -> int:
        """Wait until the process has ended; return its exit code."""
        code = self.process.wait(timeout_s * patience())
        if self._reader is not None:
            self._reader.join(30 * patience())  # its last lines are part of the answer
        return code

    def stop(self) -> None:
        """End the process, politely at first; never raises for a process that is gone."""
        if not self.alive:
            return
        with contextlib.suppress(OSError):
            self.signal_worker(signal.SIGCONT)
        self.terminate()
        try:
            self.wait(15)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(OSError):
                self.signal_worker(signal.SIGKILL)
            self.process.kill()
            self.wait(30)

    def __enter__(self) -> CandidateProcess:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _read(self) -> None:
        stream = self.process.stderr
        assert stream is not None  # asked for in start()
        with stream:
            for raw in stream:
                try:
                    line = json.loads(raw)
                except ValueError:
                    line = {"message": raw.decode(errors="replace").rstrip()}
                self.lines.append(line if isinstance(line, dict) else {"message": str(line)})


def _began(pid: int) -> float:
    """When a process began. Its number does not tell: the numbers begin again."""
    stat = stat_of(pid)
    return began_of(stat) if stat else math.inf
