"""A server that is one Java process on this host: its folder, ports, process and readiness. A
subclass says what to run.

The process dies with its starter, whatever kills the starter. It is started through ``/bin/sh``,
which first leaves a watcher in the same new process group, and then becomes (``exec``) the server.
The watcher waits on a pipe whose other end only the starter holds. When the starter dies, the
kernel closes that end, and the watcher kills its own group. So no process id is remembered that
another process could have by then (``PR_SET_PDEATHSIG`` would fire when the *thread* that forked
ends).

The group is a session of its own: Ctrl-C on the terminal reaches only the starter, which then stops
its servers in order.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import weakref
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypedDict

from leaderq.base.arguments import require, wanted
from leaderq.errors import ServerFailed
from leaderq.testing.freezing import freeze
from leaderq.testing.jars import Progress, class_path, to_stderr
from leaderq.testing.java import ClassArchive, find_java
from leaderq.testing.server import OwnServer, ScratchFolder, log_tail, wait_until_serving

# Descriptor 3 is the pipe. The watcher ignores what the server is told to do politely, and dies
# with the group.
_LAUNCH: Final = (
    "exec 3<&0; (trap '' HUP INT TERM; read -r _ <&3; {}) >/dev/null 2>&1 & exec 3<&- </dev/null;"
    ' exec "$@"'
)


class WatchedProcess:
    """A running program whose output is appended to ``log_path``.

    Guarantees: it does not outlive this process. A forked child of this process does not keep it
    alive, and cannot stop it.

    ``orphaned``: the shell command that ends the program, and everything it has started, if this
    process dies. It runs in their process group, whose id is ``$$``.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        log_path: Path,
        folder: Path,
        env: Mapping[str, str] | None = None,
        orphaned: str = "kill -KILL 0",
    ) -> None:
        self._owner = os.getpid()
        reading, self._leash = os.pipe()
        _leashes.add(self)
        try:
            with log_path.open("ab") as log:
                self._child = subprocess.Popen(
                    ["/bin/sh", "-c", _LAUNCH.format(orphaned), "leaderq-launch", *command],
                    stdin=reading,
                    stdout=log,
                    stderr=log,
                    cwd=folder,
                    env=env,
                    start_new_session=True,
                )
        except BaseException:
            self._release_leash()
            raise
        finally:
            os.close(reading)

    @property
    def pid(self) -> int:
        """The process id of the program, which the shell has become."""
        return self._child.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code: ``None`` while the program runs, negative if a signal has ended it."""
        return self._child.poll()

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the program only; do nothing if it is gone."""
        if os.getpid() == self._owner:
            self._child.send_signal(number)

    def wait(self, timeout_s: float) -> bool:
        """Wait until the program has ended, for ``timeout_s`` at most; return whether it has."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout_s)
        return self.exit_code is not None

    def end(self, *, grace_s: float) -> int:
        """Send SIGTERM, and SIGKILL after ``grace_s`` seconds; return the exit code."""
        if os.getpid() != self._owner:
            return 0
        if grace_s > 0:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            self.wait(grace_s)
        # the watcher is in the group until the leash is released, so the group is still ours
        if self._leash >= 0:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        code = self._child.wait()
        self._release_leash()
        return code

    def _release_leash(self) -> None:
        if self._leash >= 0:
            os.close(self._leash)
            self._leash = -1


_leashes: weakref.WeakSet[WatchedProcess] = weakref.WeakSet()


def _forget_leashes() -> None:
    for process in list(_leashes):
        process._release_leash()


os.register_at_fork(after_in_child=_forget_leashes)


_PORT_TAKEN: Final = re.compile(r"BindException|Address already in use")
_START_TRIES: Final = 3
_GRACE_S: Final = 30.0
_GRACE_OF_DISCARDED_S: Final = 0.1  # the data go anyway; clients only see their connections end

# Tests start servers often and keep them briefly: compile little, collect serially, share the JDK's
# classes.
QUICK_START: Final = (
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
    "-XX:-UsePerfData",
)
LOGGING: Final = tuple(
    f"-Dorg.slf4j.simpleLogger.{setting}"
    for setting in (
        "defaultLogLevel=info",
        "showDateTime=true",
        "dateTimeFormat=HH:mm:ss.SSS",
        "showShortLogName=true",
    )
)


def write_properties(file: Path, lines: Mapping[str, str]) -> Path:
    """Write a configuration file that only its owner may read; return ``file``."""
    file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    file.chmod(0o600)
    return file


class JavaServerOptions(TypedDict, total=False):
    """The options of every server from jars.

    ``port``: a fixed client port; default: a free one. ``data_dir``: a folder of yours, which is
    kept; default: a temporary one.
    """

    name: str
    port: int | None
    data_dir: Path | str | None
    heap_mb: int
    jvm_options: Sequence[str]
    progress: Progress


class JavaServer(OwnServer):
    """A :class:`~leaderq.testing.server.Server` with :class:`JavaServerOptions`."""

    jar_set: str
    heap_mb: int

    def __init__(self, options: JavaServerOptions) -> None:
        known = JavaServerOptions.__optional_keys__
        remedy = f"one of {', '.join(sorted(known))}"
        require(*(wanted("option", one, one in known, remedy) for one in options))
        super().__init__(options.get("name", self.jar_set), options.get("port"))
        data_dir = options.get("data_dir")
        self._given_folder = Path(data_dir).resolve() if data_dir is not None else None
        heap_mb = options.get("heap_mb", self.heap_mb)
        self._jvm = [f"-Xmx{heap_mb}m", *QUICK_START, *LOGGING, *options.get("jvm_options", ())]
        self._progress = options.get("progress", to_stderr)
        self._process: WatchedProcess | None = None
        self._archive: ClassArchive | None = None

    @abstractmethod
    def _prepare(self, folder: Path) -> list[str]:
        """Write the configuration; return JVM options, main class and arguments."""

    @property
    def folder(self) -> Path:
        """The folder of data, configuration and log; valid from the first ``start`` to ``stop``."""
        if self._given_folder is not None:
            return self._given_folder
        if self._scratch is None:
            raise ServerFailed(f"{self.name} was not started: it has no folder")
        return self._scratch.path

    @property
    def log_path(self) -> Path:
        """The log of all runs since the first ``start``; deleted with the data."""
        return self.folder / f"{self.name}.log"

    @property
    def log_paths(self) -> Sequence[Path]:
        has_folder = self._given_folder is not None or self._scratch is not None
        return [self.log_path] if has_folder and self.log_path.exists() else []

    def address_of(self, port_name: str) -> str:
        """The address of the listener that ``port_names`` calls ``port_name``."""
        return self._port(port_name).address

    @property
    def pid(self) -> int | None:
        """The process id of the server, or ``None`` if it is down."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.exit_code is None

    def kill(self) -> None:
        self._end_process(grace_s=0)

    def freeze(self) -> None:
        if self._process is not None:
            freeze(self._process.pid)

    def thaw(self) -> None:
        if self._process is not None:
            self._process.send(signal.SIGCONT)

    def _may_move(self) -> bool:
        """Whether the server may try other ports, because nobody knows its ports yet."""
        return not self._has_served and self._wanted_port is None and self.is_alone

    def _launch(self) -> None:
        for left in reversed(range(_START_TRIES)):
            if self._start_once(may_retry=left > 0):
                return

    def _start_once(self, *, may_retry: bool) -> bool:
        self.lease_ports()
        command = self._command()
        before = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._process = WatchedProcess(command, log_path=self.log_path, folder=self.folder)
        try:
            wait_until_serving(f"{self.what} ({self.name})", self._answers, self._problem)
        except ServerFailed as exc:
            tail = log_tail(self.log_path, since=before)
            self.kill()
            if may_retry and self._may_move() and _PORT_TAKEN.search(tail):
                self.release_ports()
                return False
            raise ServerFailed(f"{exc}; the end of {self.log_path}:\n{tail}") from None
        return True

    def _command(self) -> list[str]:
        java = find_java()
        jars = class_path(self.jar_set, progress=self._progress)
        if self._scratch is None and self._given_folder is None:
            self._scratch = ScratchFolder(self.name)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._archive = ClassArchive(java, jars, self.jar_set, may_make=self.is_alone)
        program = [str(java.program), *self._jvm, *self._archive.options]
        return [*program, "-cp", jars, *self._prepare(self.folder)]

    def _problem(self) -> str | None:
        process = self._process
        if process is None:
            return "it was stopped"  # by another thread: at Ctrl-C, the one that had it started
        code = process.exit_code
        return None if code is None else f"its process ended with exit code {code}"

    def _end(self, *, keep_data: bool) -> None:
        self._end_process(grace_s=_GRACE_S if keep_data else _GRACE_OF_DISCARDED_S)

    def _end_process(self, *, grace_s: float) -> None:
        process, archive = self._process, self._archive
        if process is not None and archive is not None:
            is_drafting = grace_s > 0 and archive.is_drafting and self._has_served
            code = process.end(grace_s=_GRACE_S if is_drafting else grace_s)
            archive.settle(is_whole=code != -signal.SIGKILL)
        self._process = self._archive = None
