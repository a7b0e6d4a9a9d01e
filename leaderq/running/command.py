"""A command as leader, in any language: ``leaderq lead``.

The career starts the command when it leads, and waits for the end of the command or of the term.
Before ``handOver`` returns, and so before the term is released, the command and all that it has
started are dead; otherwise the guardian ends this process and the command together.
``docs/design/running.md`` says which signals they get, at which times, and what it means when the
command ends by itself.

This process adopts processes of the command whose parents have died, so that none is lost if the
guardian dies. All other children of this process must belong to the command.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import MappingProxyType

from leaderq.base import clock
from leaderq.career import LeaderCareer
from leaderq.errors import CommandFailed
from leaderq.running.descendants import (
    Started,
    adopt_orphans,
    descendants_of,
    end_all,
    send,
    signal_name,
)
from leaderq.term import Reason, Term

log = logging.getLogger(__name__)

VARIABLES = "LEADERQ_TERM_"
"""The prefix of the variables that a command finds; none of them is a setting."""
CANNOT_BE_RUN = 126
NOT_FOUND = 127
"""The exit codes, as in a shell, of a command that cannot be run, and of one that is not there."""
SIGNALLED = 128
_LOOK_S = 0.05
_FIRST_STEP_S = 0.002
_KILLING_S = 1.0
"""The last part of the hand-over budget, at most a quarter, for killing what remains."""


class OnExit(Enum):
    """What this process does when its command has ended by itself."""

    STOP = "stop"
    STAND_AGAIN = "stand-again"


@dataclass(frozen=True)
class Ended:
    """Says that the command has ended by itself. ``error`` is ``None`` if it was successful."""

    error: CommandFailed | None


class CommandCareer(LeaderCareer):
    """A career that runs ``command`` once in each term.

    ``exit_code`` is the exit code for this process: that of the command if it ended by itself (128
    + n for signal n, 126 and 127 if it could not be started), else 0.
    """

    def __init__(self, command: Sequence[str], on_exit: OnExit = OnExit.STOP) -> None:
        self.exit_code = 0
        self._command = list(command)
        self._on_exit = on_exit
        self._process: subprocess.Popen[bytes] | None = None
        self._deadline: DeadlineFile | None = None

    def prepare(self) -> None:
        """Make this process adopt the orphans of everything that the command starts."""
        adopt_orphans()

    def execute(self, term: Term) -> None:
        """Run the command until it ends or the term ends."""
        self.conclude(term, self.run(term))

    def run(self, term: Term, more: Mapping[str, str] = MappingProxyType({})) -> Ended | None:
        """Run the command, with ``more`` in its environment; return how it ended. ``None``: the
        term is ending, and :meth:`handOver` will end the command.
        """
        self._deadline = DeadlineFile(term.deadline)
        try:
            process = self._start(term, self._deadline.path, more)
        except OSError as exc:
            return Ended(_not_started(self._command[0], exc))
        while term.wait(_LOOK_S):
            self._deadline.tell(term.deadline)
            self._reap()
            if (status := process.returncode) is not None:
                code = SIGNALLED - status if status < 0 else status
                log.info("command ended career=%s term=%d exit=%d", term.career, term.number, code)
                return Ended(failure(self._command[0], status))
        return None

    def conclude(self, term: Term, ended: Ended | None) -> None:
        """If the command has ended by itself, let the process end, or let it stand again."""
        if ended is None:
            return
        self._ended(ended.error)
        if self._on_exit is OnExit.STOP:
            term.finish()
        else:
            term.resign()

    def handOver(self, term: Term) -> None:  # noqa: N802
        """End the command and all that it has started, however the term ended."""
        self.end_left(term)

    def end_left(self, term: Term) -> None:
        """End the command and all that it has started: first by SIGTERM, and by SIGKILL when the
        time for that is over.
        """
        budget_s = self.settings.handover_budget_s
        planned_s = clock.now_s() + budget_s - min(_KILLING_S, budget_s / 4)
        told: set[Started] = set()
        step_s = _FIRST_STEP_S
        while (left := descendants_of(os.getpid())) and clock.now_s() < self._kill_s(
            term, planned_s
        ):
            if not told or self._process is None or self._process.returncode is not None:
                told |= send(left - told, signal.SIGTERM)
            clock.sleep(step_s)
            step_s = min(2 * step_s, _LOOK_S)  # quick for a quick end, and cheap
            self._reap()
        if left:
            log.warning(
                "killing what is left of the command career=%s term=%d processes=%d",
                term.career,
                term.number,
                len(left),
            )
        while not end_all(os.getpid(), within_s=1.0):
            self._reap()  # for as long as the runner and the guardian allow
        self._reap()
        self._process = None
        if self._deadline is not None:
            self._deadline.close()
            self._deadline = None

    def pass_on(self, number: int) -> None:
        """Send a signal to the command, if it is running and may be signalled: one of another user,
        such as ``sudo``, may not. Signal handlers call this, so it must not raise.
        """
        process = self._process
        if process is not None:
            with suppress(PermissionError):
                process.send_signal(number)

    def _start(self, term: Term, deadline: str, more: Mapping[str, str]) -> subprocess.Popen[bytes]:
        values = variables(
            term,
            lease_s=self.session.shares.trusted_s,
            budget_s=self.settings.handover_budget_s,
            deadline=deadline,
        )
        # A session of its own: a command that signals its process group does not mean this process.
        environment = {**os.environ, **values, **more}
        self._process = subprocess.Popen(self._command, env=environment, start_new_session=True)
        pid = self._process.pid
        log.info("command started career=%s term=%d pid=%d", term.career, term.number, pid)
        return self._process

    def _ended(self, error: CommandFailed | None) -> None:
        if self._on_exit is OnExit.STOP:
            self._stands_again = False
            self.exit_code = error.exit_code if error is not None else 0
        if error is not None:
            raise error

    def _kill_s(self, term: Term, planned_s: float) -> float:
        """When to kill the remaining processes. Asked again and again, because the reason may
        become more urgent.
        """
        reason = term.reason
        if reason is not None and reason.deposes and reason is not Reason.LEASE:
            return 0.0
        return min(planned_s, term.deadline + 2 * self.session.shares.grace_s)

    def _reap(self) -> None:
        """Collect dead children: the command, and the orphans that this process has adopted."""
        with suppress(ChildProcessError):
            while dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                if self._process is not None and dead.si_pid == self._process.pid:
                    self._process.poll()
                else:
                    os.waitpid(dead.si_pid, 0)


class DeadlineFile:
    """A file in memory that holds the end of the lease: seconds on ``CLOCK_BOOTTIME``, the clock of
    the kernel. ``/proc/uptime`` shows the same clock, except in a container where it shows the
    container's uptime (LXCFS); so commands ask with ``leaderq deadline``.

    Processes of the same user can read ``path`` while this process lives. If there is no such file,
    the term is over. The contents are replaced as a whole.
    """

    def __init__(self, deadline_s: float) -> None:
        self._number = os.memfd_create("leaderq-deadline")
        self._told_s = 0.0
        self.path = f"/proc/{os.getpid()}/fd/{self._number}"
        self.tell(deadline_s)

    def tell(self, deadline_s: float) -> None:
        """Write the deadline, if it has changed."""
        if deadline_s == self._told_s:
            return
        self._told_s = deadline_s
        new = os.memfd_create("leaderq-deadline")
        try:
            # never later than it is
            os.write(new, f"{int(deadline_s * 1000) / 1000:.3f}\n".encode())
            os.dup2(new, self._number, inheritable=False)
        finally:
            os.close(new)

    def close(self) -> None:
        os.close(self._number)

    @staticmethod
    def left_s(path: str) -> float:
        """The seconds until the end of the lease, by the file at ``path``. 0 or less means that the
        term is over; a missing file means the same.
        """
        try:
            return float(Path(path).read_text(encoding="ascii")) - clock.now_s()
        except (OSError, ValueError):
            return 0.0


def variables(term: Term, *, lease_s: float, budget_s: float, deadline: str) -> Mapping[str, str]:
    """The variables that tell a command about its term."""
    values = {
        "CAREER": term.career,
        "CANDIDATE": term.candidate,
        "NUMBER": str(term.number),
        "ID": term.id,
        "UNCLEAN": str(int(term.unclean)),
        "LEASE_S": f"{lease_s:g}",
        "BUDGET_S": f"{budget_s:g}",
        "DEADLINE_FILE": deadline,
    }
    return {VARIABLES + name: value for name, value in values.items()}


def failure(name: str, status: int) -> CommandFailed | None:
    """The error for the exit status ``status`` (-n: ended by signal n); ``None`` if it was
    successful.
    """
    if status == 0:
        return None
    if status > 0:
        return CommandFailed(name, f"failed: exit code {status}", status)
    return CommandFailed(name, f"was ended by {signal_name(-status)}", SIGNALLED - status)


def check_command(name: str) -> None:
    """Return if the program ``name`` can be started; raise :class:`CommandFailed` if not."""
    if (path := shutil.which(name)) is not None:
        if (interpreter := _missing_interpreter(path)) is not None:
            what = f"cannot be run: its first line names {interpreter!r}, which is not there"
            raise CommandFailed(name, what, CANNOT_BE_RUN)
        return
    if not name:
        raise CommandFailed(name, "was not found: its name is empty", NOT_FOUND)
    if Path(name).is_dir():
        raise CommandFailed(name, "cannot be run: it is a folder; name a program", CANNOT_BE_RUN)
    if shutil.which(name, mode=os.F_OK) is not None:
        remedy = "chmod +x it, or put its interpreter in front of it"
        raise CommandFailed(name, f"cannot be run: it is not executable; {remedy}", CANNOT_BE_RUN)
    where = "there is no such file" if "/" in name else "it is in no folder of PATH"
    raise CommandFailed(name, f"was not found: {where}", NOT_FOUND)


def _missing_interpreter(path: str) -> str | None:
    """Return the interpreter that the first line of the script at ``path`` names, if that
    interpreter does not exist; otherwise ``None``.
    """
    try:
        with open(path, "rb") as file:  # noqa: PTH123  (one line of what may be any program)
            first = file.readline(256)
    except OSError:
        return None  # it may be run, and not be read
    words = first[2:].split(maxsplit=1) if first.startswith(b"#!") else []
    interpreter = os.fsdecode(words[0]) if words else ""
    return interpreter if interpreter and not Path(interpreter).exists() else None


def _not_started(name: str, error: OSError) -> CommandFailed:
    if error.errno == errno.ENOEXEC:
        what = "cannot be run: it is neither a program of this machine nor begins with #!"
        remedy = "write #! and its interpreter in its first line, or put that in front of it"
        return CommandFailed(name, f"{what}; {remedy}", CANNOT_BE_RUN)
    if not isinstance(error, FileNotFoundError):
        return CommandFailed(name, f"cannot be run: {error.strerror}", CANNOT_BE_RUN)
    if shutil.which(name) is None:
        return CommandFailed(name, "was not found any more", NOT_FOUND)
    what = "cannot be run: the interpreter or loader that it names was not found"
    return CommandFailed(name, what, CANNOT_BE_RUN)
