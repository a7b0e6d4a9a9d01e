"""One child process that dies with its starter, whatever kills the starter.

The child is started through ``/bin/sh``, which first leaves a watcher behind in the same new process group and then becomes
(``exec``) the server. The watcher waits on a pipe whose other end only the starter holds. When the starter dies, kill -9 included,
the kernel closes that end and the watcher kills its own group. No process id is remembered for that, so none can be reused
by a stranger; no thread matters either (``PR_SET_PDEATHSIG`` would fire when the *thread* that forked ends).

The group is a session of its own: Ctrl-C on the terminal reaches the starter only, which then stops its servers in order.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

# Descriptor 3 is the pipe. The watcher ignores what the server is told to do politely, and dies with the group.
_LAUNCH: Final = (
    "exec 3<&0; (trap '' HUP INT TERM; read -r _ <&3; kill -KILL 0) >/dev/null 2>&1 & exec 3<&- </dev/null; exec \"$@\""
)


class WatchedProcess:
    """A running program whose output goes to the end of ``log_path``.

    Guarantees: it does not outlive this process. A forked child of this process does not keep it alive and cannot stop it.
    """

    def __init__(
        self, command: Sequence[str], *, log_path: Path, folder: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self._owner = os.getpid()
        reading, self._leash = os.pipe()
        _leashes.add(self)
        try:
            with log_path.open("ab") as log:
                self._child = subprocess.Popen(
                    ["/bin/sh", "-c", _LAUNCH, "leaderq-launch", *command],
                    stdin=reading, stdout=log, stderr=log, cwd=folder, env=env, start_new_session=True,
                )  # fmt: skip
        except BaseException:
            self._let_go()
            raise
        finally:
            os.close(reading)

    @property
    def pid(self) -> int:
        """The process id of the program itself (the shell has become it)."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """``None`` while it runs; negative is the signal that ended it."""
        return self._child.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program only; nothing if it is gone."""
        if os.getpid() == self._owner:
            self._child.send_signal(number)

    def end(self, *, grace_s: float) -> int:
        """End it: SIGTERM, and after ``grace_s`` seconds SIGKILL. Gives the exit code when it is gone; may be called again."""
        if os.getpid() != self._owner:
            return 0
        if grace_s > 0:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(grace_s)
        if self._leash >= 0:  # the watcher is in the group until the leash is let go, so the group is still ours
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        code = self._child.wait()
        self._let_go()
        return code

    def _let_go(self) -> None:
        if self._leash >= 0:
            os.close(self._leash)
            self._leash = -1


_leashes: weakref.WeakSet[WatchedProcess] = weakref.WeakSet()


def _forget_leashes() -> None:
    for process in list(_leashes):
        process._let_go()


os.register_at_fork(after_in_child=_forget_leashes)
