"""The guardian: a small parent process that makes a crash cost milliseconds instead of a session
time-out.

It runs the worker, and knows the worker's session. Four duties:

* the worker dies, however: what it has started is killed, then its session is taken up and closed,
  so that its candidate znode vanishes and the next leader starts at once (about 10 ms, whatever the
  time-out);
* the worker lives on after its lease: see :mod:`leaderq.running.watchdog`;
* signals are passed on; one that was ignored when the guardian began stays ignored (``nohup``);
* as process 1 of a container, and for what the worker has left behind, it reaps.

Who is authoritative: the worker about its term, the kernel about its death. The guardian decides
nothing about leadership. It loads neither the user's module nor the configuration: the worker tells
it where ZooKeeper is.

On each failure: ZooKeeper does not answer when the session is to be closed: tried for as long as
the session can last, then it has ended by itself. The guardian dies: the worker hands over and
leaves. Both die together: the session times out.

What the worker has started dies with it, also what has made a session of its own or was started by
something that has ended since: on Linux such orphans become children of the guardian
(``PR_SET_CHILD_SUBREAPER``). Elsewhere only the worker's process group is killed. What was handed
to another process to start (``systemd-run``, a container engine, ``at``) is out of reach
everywhere.

The worker is a session of its own, so that Ctrl-C in a terminal reaches it once, through here.
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
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from leaderq.clock import now_s
from leaderq.exits import ExitCode
from leaderq.running.descendants import (
    Started,
    adopt_orphans,
    children_of,
    descendants_of,
    end_all,
    kill,
    kill_below,
    stat_of,
)
from leaderq.running.watchdog import Intervention, LeaseReport, Watchdog

if TYPE_CHECKING:
    from leaderq.zookeeper import Credentials, SessionEnder

log = logging.getLogger(__name__)

GUARDIAN_FD = "LEADERQ_GUARDIAN_FD"
SAME_REQUEST_S = 0.3
"""A second signal to stop within this time after the first is the same request: systemd sends one
to every process of a service, and the guardian passes its own on.
"""
_ALWAYS_PASSED_ON = (signal.SIGTERM, signal.SIGINT)
_PASSED_ON_UNLESS_IGNORED = (signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_LONGEST_LINE = 1 << 16
_STARTED_S = 0.2
"""How long to kill what a stopped worker has started, and what that starts meanwhile."""
_UNKILLABLE_S = 10.0
"""How long to wait for killed processes that do not end; without a session nothing else is known.
"""


@dataclass(frozen=True, slots=True)
class KnownSession:
    """The session to close when the worker dies."""

    credentials: Credentials
    timeout_s: float


_EARLY_ENDS: dict[int, ExitCode] = {signal.SIGINT: ExitCode.FORCED, signal.SIGTERM: ExitCode.OK}
"""What a worker that such a signal has killed before it had a session ends with."""


class Guardian:
    """Watches over one worker; all other children of this process must be the guardian's own."""

    def __init__(self) -> None:
        self._ender: SessionEnder | None = None
        self._session: KnownSession | None = None
        self._watchdog = Watchdog()
        self._told_to_stop = 0
        self._told_s = float("-inf")
        self._has_asked = False
        self._exit_status: int | None = None
        self._buffer = b""

    def run(self, command: Sequence[str]) -> int:
        """Start ``command`` as the worker; returns the exit code to end with.

        Returns when the worker and what it has started are dead and its session is closed.
        """
        ours, theirs = socket.socketpair()
        wake_reading, wake_writing = socket.socketpair()
        for end in (ours, wake_reading, wake_writing):
            end.setblocking(False)
        restore = self._take_signals(wake_writing)
        try:
            adopt_orphans()
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
        environment = {**os.environ, GUARDIAN_FD: str(number)}
        return subprocess.Popen(
            command, env=environment, pass_fds=(number,), start_new_session=True
        )

    def _take_signals(self, wake: socket.socket) -> Callable[[], None]:
        # Handlers that do nothing: the wake-up descriptor carries the numbers to the loop below.
        def nothing(_number: int, _frame: FrameType | None) -> None:
            return None

        heard = [n for n in _PASSED_ON_UNLESS_IGNORED if signal.getsignal(n) is not signal.SIG_IGN]
        before = {
            number: signal.signal(number, nothing)
            for number in (*_ALWAYS_PASSED_ON, *heard, signal.SIGCHLD)
        }
        descriptor = signal.set_wakeup_fd(wake.fileno())

        def restore() -> None:
            signal.set_wakeup_fd(descriptor)
            for number, handler in before.items():
                signal.signal(number, handler)

        return restore

    # ---- the loop ---------------------------------------------------------------------------

    def _stay(
        self, worker: subprocess.Popen[bytes], link: socket.socket, wake: socket.socket
    ) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(link, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            while self._exit_status is None:
                due_s = self._watchdog.due_s
                ready = selector.select(None if due_s is None else max(0.0, due_s - now_s()))
                for key, _ in ready:
                    if key.fileobj is wake:
                        self._pass_on(wake.recv(256), worker)
                    elif not self._read(link):
                        selector.unregister(link)  # closed; SIGCHLD tells of the death
                self._reap(worker)
                self._look(worker)

    def _pass_on(self, numbers: bytes, worker: subprocess.Popen[bytes]) -> None:
        for number in numbers:
            if number == signal.SIGCHLD:
                continue
            if number in _ALWAYS_PASSED_ON:
                if now_s() - self._told_s < SAME_REQUEST_S:
                    continue
                self._told_s = now_s()
                self._told_to_stop += 1
                if self._told_to_stop == 1 and self._has_asked:
                    # the worker is on its way out; it would read a second one as "at once"
                    continue
            # A worker that does not follow a second request to leave is not asked again.
            is_over = self._told_to_stop > 2
            self._signal(worker, signal.SIGKILL if is_over else signal.Signals(number))

    def _reap(self, worker: subprocess.Popen[bytes]) -> None:
        """Collect whatever has died; the worker last, after what it has started."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            if dead.si_pid == worker.pid:
                # Before its number is given free: its process group bears the same one.
                self._kill_descendants(worker.pid)
            _, status = os.waitpid(dead.si_pid, 0)
            if dead.si_pid == worker.pid:
                self._exit_status = worker.returncode = os.waitstatus_to_exitcode(status)
                return

    def _kill_descendants(self, worker: int) -> None:
        """Kill what the dead worker has started, and wait until it is gone."""
        began_s = now_s()
        limit_s = _UNKILLABLE_S if self._session is None else self._session.timeout_s
        killed: set[Started] = set()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)
        # Those of the dead are ours now, and so on until there are none.
        while (left := children_of(os.getpid()) - {worker}) and now_s() < began_s + limit_s:
            for pid in left:
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
            killed |= kill_below(os.getpid())
            time.sleep(0.0005)
        if killed:
            log.warning(
                "killed what the worker had started processes=%d unkillable=%d ms=%.0f",
                len(killed),
                len(left),
                (now_s() - began_s) * 1000,
                extra={"event": "descendants_killed", "processes": len(killed)},
            )

    def _look(self, worker: subprocess.Popen[bytes]) -> None:
        if self._exit_status is not None:
            return
        stopped = _is_stopped(worker.pid)
        self._watchdog, intervention = self._watchdog.look(now_s(), stopped=stopped)
        report = self._watchdog.report
        if intervention is Intervention.LEAVE_ALONE or report is None:
            return
        if intervention is Intervention.KILL_STARTED:
            end_all(os.getpid(), within_s=_STARTED_S, but=worker.pid)
            return
        is_last = intervention is Intervention.KILL
        if not is_last and self._told_to_stop:
            return  # it has been asked to leave already
        self._has_asked = True
        how = signal.SIGKILL if is_last else signal.SIGTERM
        # Before the log line, which nothing may wait for.
        if is_last:
            # Listed before anything dies: orphans move in the midst of a listing and are missed.
            started = descendants_of(os.getpid())
            with suppress(ProcessLookupError):
                # one call for nearly all; then those that left the group
                os.killpg(worker.pid, how)
            kill(started)
            self._watchdog = self._watchdog.heard(None)
        else:
            self._signal(worker, how)
        log.error(
            "worker overdue pid=%d term=%d overdue_s=%.2f sent=%s",
            worker.pid,
            report.term,
            now_s() - report.ends_s,
            how.name,
            extra={"event": "worker_overdue", "term": report.term},
        )

    def _signal(self, worker: subprocess.Popen[bytes], number: signal.Signals) -> None:
        if self._exit_status is None:
            os.kill(worker.pid, number)  # not reaped yet, so the number is still its own

    # ---- what the worker says ---------------------------------------------------------------

    def _read(self, link: socket.socket) -> bool:
        """Take in what the worker says; returns ``False`` at the end of the link."""
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
            if "zookeeper" in message:
                self._ender = _session_ender(message)
            if "session" in message:
                self._session = _known_session(message)
                if self._ender is not None and message.get("servers"):
                    self._ender.know([(ip, port) for ip, port in message["servers"]])
            if "term" in message:
                report = LeaseReport(**message) if message["term"] is not None else None
                self._watchdog = self._watchdog.heard(report)
        except Exception:  # noqa: BLE001  (neither the line nor a traceback: both may show a password)
            log.error("unreadable report from the worker, ignored")  # noqa: TRY400

    def _close_session(self) -> None:
        known, ender = self._session, self._ender
        if known is None or ender is None:
            return
        began_s = now_s()
        closed = ender.end(
            known.credentials, timeout_s=known.timeout_s, session_timeout_s=known.timeout_s
        )
        log.info(
            "worker's session ended closed=%s ms=%.0f",
            closed,
            (now_s() - began_s) * 1000,
            extra={"event": "session_ended", "closed": closed},
        )

    def _exit_code(self) -> int:
        status = self._exit_status or 0
        if status >= 0:
            return status
        if self._told_to_stop and self._session is None and -status in _EARLY_ENDS:
            return _EARLY_ENDS[-status]  # the signal was quicker than what handles it
        name = signal.Signals(-status).name
        log.error("worker died signal=%s", name, extra={"event": "worker_died"})
        return ExitCode.FORCED if self._told_to_stop > 2 else ExitCode.FAILED


def _session_ender(message: dict[str, Any]) -> SessionEnder:
    # here, so that a worker can start meanwhile
    from leaderq.zookeeper import Security, SessionEnder

    known = message["security"]
    return SessionEnder(message["zookeeper"], security=None if known is None else Security(**known))


def _known_session(message: dict[str, Any]) -> KnownSession | None:
    if message["session"] is None:
        return None
    from leaderq.zookeeper import Credentials

    credentials = Credentials(int(message["session"]), base64.b64decode(message["password"]))
    return KnownSession(credentials, float(message["timeout_s"]))


def _is_stopped(pid: int) -> bool:
    """Whether a signal or a debugger has stopped the process; ``False`` where that is not told."""
    return stat_of(pid)[:1] in (["T"], ["t"])


def watch_over(arguments: Sequence[str]) -> int:
    """Run ``python -m leaderq *arguments`` as a worker under a guardian; returns the exit code."""
    return Guardian().run([sys.executable, "-m", "leaderq", *arguments])
