"""The guardian: a small parent process that makes a crash cost milliseconds instead of a session time-out.

It runs the worker, and knows the worker's session. Three duties:

* the worker dies, however: re-attach to its session and close it, so that its candidate znode vanishes and the next leader starts
  at once (measured in the spec, fact 6: about 10 ms, whatever the time-out);
* the worker lives on after its lease (:mod:`leaderq.running.watchdog`): SIGTERM, then SIGKILL;
* signals are passed on and, as PID 1 of a container, orphans are reaped.

Who is authoritative: the worker about its term, the kernel about its death. The guardian decides nothing about leadership.

On each failure: ZooKeeper does not answer when the session is to be closed: tried for as long as the session can last, then it has
ended by itself. The guardian dies: the worker goes on and says so. Both die together: the session times out.

The worker is a group of its own, so that Ctrl-C in a terminal reaches it once, through here.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import selectors
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from leaderq.clock import now_s
from leaderq.exits import ExitCode
from leaderq.running.guardian_link import GUARDIAN_FD
from leaderq.running.watchdog import Intervention, LeaseReport, Watchdog
from leaderq.zookeeper import Credentials, Security, SessionEnder

log = logging.getLogger(__name__)

_PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_LONGEST_LINE = 1 << 16


@dataclass(frozen=True, slots=True)
class KnownSession:
    """The session to close when the worker dies."""

    credentials: Credentials
    timeout_s: float


class Guardian:
    """Watches over one worker. ``address`` and ``security`` are how the worker reaches ZooKeeper."""

    def __init__(self, address: str, *, security: Security | None = None) -> None:
        self._ender = SessionEnder(address, security=security)
        self._session: KnownSession | None = None
        self._watch = Watchdog()
        self._told_to_stop = 0
        self._exit_status: int | None = None
        self._buffer = b""

    def run(self, command: Sequence[str]) -> int:
        """Start ``command`` as the worker and stay until it is dead and its session closed; gives the exit code to end with."""
        ours, theirs = socket.socketpair()
        wake_reading, wake_writing = socket.socketpair()
        for end in (ours, wake_reading, wake_writing):
            end.setblocking(False)
        restore = self._take_signals(wake_writing)
        try:
            worker = self._start(command, theirs)
            theirs.close()
            self._stay(worker, ours, wake_reading)
        finally:
            restore()
            wake_reading.close()
            wake_writing.close()
        self._read(ours)  # what the worker said last
        ours.close()
        self._close_session()
        return self._exit_code()

    def _start(self, command: Sequence[str], link: socket.socket) -> subprocess.Popen[bytes]:
        number = link.fileno()
        return subprocess.Popen(
            command, env={**os.environ, GUARDIAN_FD: str(number)}, pass_fds=(number,), start_new_session=True
        )

    def _take_signals(self, wake: socket.socket) -> Callable[[], None]:
        # Handlers that do nothing: the wake-up descriptor carries the numbers to the loop below.
        def nothing(_number: int, _frame: FrameType | None) -> None:
            return None

        before = {number: signal.signal(number, nothing) for number in (*_PASSED_ON, signal.SIGCHLD)}
        descriptor = signal.set_wakeup_fd(wake.fileno())

        def restore() -> None:
            signal.set_wakeup_fd(descriptor)
            for number, handler in before.items():
                signal.signal(number, handler)

        return restore

    def _stay(self, worker: subprocess.Popen[bytes], link: socket.socket, wake: socket.socket) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(link, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            while self._exit_status is None:
                look_s = self._watch.next_look_s(now_s())
                ready = selector.select(None if look_s is None else max(0.0, look_s - now_s()))
                for key, _ in ready:
                    if key.fileobj is wake:
                        self._take(wake.recv(256), worker)
                    elif not self._read(link):
                        selector.unregister(link)  # closed; SIGCHLD tells of the death
                self._reap(worker)
                self._look(worker)

    def _take(self, numbers: bytes, worker: subprocess.Popen[bytes]) -> None:
        for number in numbers:
            if number != signal.SIGCHLD:
                self._told_to_stop += number in (signal.SIGTERM, signal.SIGINT)
                # A worker that does not even follow a second request to leave is not asked a third time.
                self._signal(worker, signal.SIGKILL if self._told_to_stop > 2 else signal.Signals(number))

    def _reap(self, worker: subprocess.Popen[bytes]) -> None:
        """Collect the worker and, as PID 1, whatever else has died."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid == worker.pid:
                self._exit_status = worker.returncode = os.waitstatus_to_exitcode(status)

    def _look(self, worker: subprocess.Popen[bytes]) -> None:
        if self._exit_status is not None:
            return
        self._watch, verdict = self._watch.look(now_s(), stopped=_is_stopped(worker.pid))
        report = self._watch.report
        if verdict is Intervention.LEAVE_ALONE or report is None:
            return
        how = signal.SIGTERM if verdict is Intervention.TERMINATE else signal.SIGKILL
        log.error(
            "worker %d still holds term %d %.1f s after it should have let go; sending it %s",
            worker.pid,
            report.term,
            now_s() - report.until_s,
            how.name,
            extra={"event": "worker_overdue", "term": report.term},
        )
        self._signal(worker, how)
        if verdict is Intervention.KILL:
            self._watch = self._watch.heard(None)

    def _signal(self, worker: subprocess.Popen[bytes], number: signal.Signals) -> None:
        if self._exit_status is None:
            os.kill(worker.pid, number)  # not reaped yet, so the number is still its own

    def _read(self, link: socket.socket) -> bool:
        """Take in what the worker says; gives ``False`` at the end of the link."""
        while True:
            try:
                data = link.recv(4096)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not data:
                return False
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            if len(self._buffer) > _LONGEST_LINE:
                self._buffer = b""
            for line in lines:
                self._hear(line)

    def _hear(self, line: bytes) -> None:
        try:
            message: dict[str, Any] = json.loads(line)
            if "session" in message:
                self._session = _known_session(message)
                self._ender.prepare()  # the worker has just resolved the same names
            if "term" in message:
                self._watch = self._watch.heard(LeaseReport(**message) if message["term"] is not None else None)
        except (ValueError, TypeError, KeyError):
            # Neither the line nor a traceback: either may show the session's password.
            log.error("the worker said something that is no report; ignored")  # noqa: TRY400

    def _close_session(self) -> None:
        known = self._session
        if known is None:
            return
        began_s = now_s()
        closed = self._ender.end(known.credentials, timeout_s=known.timeout_s, session_timeout_s=known.timeout_s)
        log.info(
            "the worker is gone; its session %s within %.0f ms",
            "is closed" if closed else "could not be closed",
            (now_s() - began_s) * 1000,
            extra={"event": "session_ended", "closed": closed},
        )

    def _exit_code(self) -> int:
        status = self._exit_status or 0
        if status >= 0:
            return status
        log.error("the worker was ended by %s", signal.Signals(-status).name, extra={"event": "worker_died"})
        return ExitCode.FORCED if self._told_to_stop > 2 else ExitCode.FAILED


def _known_session(message: dict[str, Any]) -> KnownSession | None:
    if message["session"] is None:
        return None
    credentials = Credentials(int(message["session"]), base64.b64decode(message["password"]))
    return KnownSession(credentials, float(message["timeout_s"]))


def _is_stopped(pid: int) -> bool:
    """Whether the process is stopped by a signal or a debugger; ``False`` where the system does not tell."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def watch_over(arguments: Sequence[str], *, address: str, security: Security | None = None) -> int:
    """Run ``python -m leaderq *arguments`` as a worker under a guardian; gives the exit code to end with."""
    return Guardian(address, security=security).run([sys.executable, "-m", "leaderq", *arguments])
