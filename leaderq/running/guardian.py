"""The guardian: a small parent process that makes a crash cost milliseconds instead of a session
time-out.

It starts the worker, and knows the worker's session. It has four duties:

* when the worker dies, it kills what the worker has started, then takes up and closes the worker's
  session, so that the next leader starts at once (about 10 ms, whatever the time-out);
* if the worker lives on after its lease, it ends the worker: see :mod:`leaderq.running.watchdog`;
* it passes signals on; one that was ignored when the guardian began stays ignored (``nohup``);
* it reaps the dead processes that the worker has left behind; as process 1 of a container, all.

It decides nothing about leadership. ``docs/design/running.md`` says what ends at which time, and
what the guardian cannot reach. If ZooKeeper does not answer, the guardian tries to close the
session for as long as the session can last. If no file can be opened, it looks for the worker's
processes just as long. If it may not signal the worker, which is then of another user, it closes
the link to the worker; the worker then hands over and leaves as if the guardian were dead.
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
from contextlib import closing, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any

from leaderq.base import clock
from leaderq.base.exits import ExitCode
from leaderq.running.alarm import Alarm
from leaderq.running.descendants import (
    MARK,
    Started,
    adopt_orphans,
    children_of,
    descendants_of,
    end_all,
    kill,
    kill_below,
    signal_name,
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
"""How long to wait for killed processes that do not end, if there is no session."""


@dataclass(frozen=True, slots=True)
class KnownSession:
    """The session to close when the worker dies."""

    credentials: Credentials
    timeout_s: float


_EARLY_ENDS: dict[int, ExitCode] = {signal.SIGINT: ExitCode.FORCED, signal.SIGTERM: ExitCode.OK}
"""The exit code of a worker that such a signal has killed before it had a session."""


class Guardian:
    """Watches over one worker. All other children of this process must be those that the guardian
    has adopted.
    """

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
        """Start ``command`` as the worker; return the exit code for this process.

        It returns when the worker and what the worker has started are dead, and the worker's
        session is closed.
        """
        self._link, theirs = socket.socketpair()
        wake_reading, wake_writing = socket.socketpair()
        for end in (self._link, wake_reading, wake_writing):
            end.setblocking(False)
        restore = self._take_signals(wake_writing)
        try:
            adopt_orphans()
            link = theirs.fileno()
            told = {GUARDIAN_FD: str(link), MARK: f"{os.getpid()}-{clock.now_s():.6f}"}
            worker = subprocess.Popen(
                command,
                env={**os.environ, **told},
                pass_fds=(link,),
                start_new_session=True,
            )
            theirs.close()
            self._stay(worker, wake_reading)
        finally:
            restore()
            wake_reading.close()
            wake_writing.close()
        self._read()  # what the worker said last
        self._link.close()
        self._close_session()
        return self._exit_code()

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

    def _stay(self, worker: subprocess.Popen[bytes], wake: socket.socket) -> None:
        with selectors.DefaultSelector() as selector, closing(Alarm()) as alarm:
            selector.register(self._link, selectors.EVENT_READ)
            selector.register(wake, selectors.EVENT_READ)
            if alarm.fileno is not None:
                selector.register(alarm.fileno, selectors.EVENT_READ)
            while self._exit_status is None:
                due_s = self._watchdog.due_s
                alarm.set(due_s)  # the selector's own clock stands still in a suspended host
                ready = selector.select(None if due_s is None else max(0.0, due_s - clock.now_s()))
                for key, _ in ready:
                    if key.fileobj is wake:
                        self._pass_on(wake.recv(256), worker)
                    elif key.fileobj is self._link and not self._read():
                        selector.unregister(self._link)  # closed; SIGCHLD tells of the death
                self._reap(worker)
                self._look(worker)

    def _pass_on(self, numbers: bytes, worker: subprocess.Popen[bytes]) -> None:
        for number in numbers:
            if number == signal.SIGCHLD:
                continue
            if number in _ALWAYS_PASSED_ON:
                if clock.now_s() - self._told_s < SAME_REQUEST_S:
                    continue
                self._told_s = clock.now_s()
                self._told_to_stop += 1
                if self._told_to_stop == 1 and self._has_asked:
                    # the worker is on its way out; it would read a second one as "at once"
                    continue
            # A worker that does not follow a second request to leave is not asked again.
            is_over = self._told_to_stop > 2
            self._signal(worker, signal.SIGKILL if is_over else signal.Signals(number))

    def _reap(self, worker: subprocess.Popen[bytes]) -> None:
        """Collect dead children; the worker only after the processes that it has started."""
        while True:
            try:
                dead = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if dead is None:
                return
            if dead.si_pid == worker.pid:
                # Before its number is free again: its process group has the same one.
                self._kill_descendants(worker.pid)
            _, status = os.waitpid(dead.si_pid, 0)
            if dead.si_pid == worker.pid:
                self._exit_status = worker.returncode = os.waitstatus_to_exitcode(status)
                return

    def _kill_descendants(self, worker: int) -> None:
        """Kill the processes that the dead worker has started, and wait until they are gone."""
        began_s = clock.now_s()
        limit_s = _UNKILLABLE_S if self._session is None else self._session.timeout_s
        killed: set[Started] = set()
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(worker, signal.SIGKILL)
        # Those of the dead are ours now, and so on until there are none.
        left: set[int] = set()
        problem: OSError | None = None
        while clock.now_s() < began_s + limit_s:
            try:
                if not (left := children_of(os.getpid()) - {worker}):
                    problem = None
                    break
                for pid in left:
                    with suppress(ChildProcessError):
                        os.waitpid(pid, os.WNOHANG)
                killed |= kill_below(os.getpid())
            except OSError as exc:
                problem = exc
            clock.sleep(0.0005)
        if problem is not None:
            log.error("what the worker had started cannot be looked for error=%s", problem)
        if killed:
            log.warning(
                "killed what the worker had started processes=%d unkillable=%d ms=%.0f",
                len(killed),
                len(left),
                (clock.now_s() - began_s) * 1000,
                extra={"event": "descendants_killed", "processes": len(killed)},
            )

    def _look(self, worker: subprocess.Popen[bytes]) -> None:
        if self._exit_status is not None:
            return
        try:
            stopped = _is_stopped(worker.pid)
        except OSError:  # it cannot be looked at now
            stopped = self._watchdog.stopped
        self._watchdog, intervention = self._watchdog.look(clock.now_s(), stopped=stopped)
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
            started: set[Started] = set()
            with suppress(OSError):  # else they are looked for again, when the worker is dead
                # Listed before anything dies: orphans move in the midst of a listing and are missed
                started = descendants_of(os.getpid())
            # one call for nearly all; then those that left the group
            self._signal(worker, how, os.killpg)
            with suppress(OSError):
                kill(started)
            self._watchdog = self._watchdog.heard(None)
        else:
            self._signal(worker, how)
        log.error(
            "worker overdue pid=%d term=%d overdue_s=%.2f sent=%s",
            worker.pid,
            report.term,
            clock.now_s() - report.ends_s,
            how.name,
            extra={"event": "worker_overdue", "term": report.term},
        )

    def _signal(
        self,
        worker: subprocess.Popen[bytes],
        number: signal.Signals,
        send: Callable[[int, int], None] = os.kill,
    ) -> None:
        if self._exit_status is not None:
            return
        try:
            send(worker.pid, number)  # not reaped yet, so the number is still its own
        except PermissionError as exc:
            with suppress(OSError):
                self._link.shutdown(socket.SHUT_RDWR)
            log.error(  # noqa: TRY400  (a sentence for operators)
                "worker may not be signalled for want of CAP_KILL, so the link to it is closed"
                " pid=%d signal=%s error=%s",
                worker.pid,
                number.name,
                exc,
                extra={"event": "worker_not_signalled"},
            )

    # ---- what the worker says ---------------------------------------------------------------

    def _read(self) -> bool:
        """Read and handle what the worker says; return ``False`` at the end of the link."""
        while True:
            try:
                data = self._link.recv(4096)
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
        began_s = clock.now_s()
        closed = ender.end(
            known.credentials, timeout_s=known.timeout_s, session_timeout_s=known.timeout_s
        )
        log.info(
            "worker's session ended closed=%s ms=%.0f",
            closed,
            (clock.now_s() - began_s) * 1000,
            extra={"event": "session_ended", "closed": closed},
        )

    def _exit_code(self) -> int:
        status = self._exit_status or 0
        if status >= 0:
            return status
        if self._told_to_stop and self._session is None and -status in _EARLY_ENDS:
            return _EARLY_ENDS[-status]  # the signal was quicker than what handles it
        log.error("worker died signal=%s", signal_name(-status), extra={"event": "worker_died"})
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
    """Whether a signal or a debugger has stopped the process; ``False`` if unknown."""
    return stat_of(pid)[:1] in (["T"], ["t"])


def watch_over(arguments: Sequence[str]) -> int:
    """Run ``python -m leaderq *arguments`` as a worker under a guardian; return the exit code."""
    return Guardian().run([sys.executable, "-m", "leaderq", *arguments])
