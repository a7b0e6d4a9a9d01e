"""A server that is one Java process on this host: folder, ports, process and readiness; what to run
is the subclass's business.

The process dies with its starter, whatever kills the starter.
The child is started through ``/bin/sh``, which first leaves a watcher behind in the same new
process group and then becomes (``exec``) the server. The watcher waits on a pipe whose other end
only the starter holds. When the starter dies, kill -9 included, the kernel closes that end and the
watcher kills its own group. No process id is remembered for that, so none can be reused by a
stranger; no thread matters either (``PR_SET_PDEATHSIG`` would fire when the *thread* that forked
ends).

The group is a session of its own: Ctrl-C on the terminal reaches the starter only, which then stops
its servers in order.

Data lie in folders that do not outlive their owner.
Each folder holds a locked file. The owner removes its folder when done; folders of owners that were
killed are known by their lock being free, and are swept when the next one is made.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import signal
import subprocess
import tempfile
import weakref
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypedDict, TypeVar

from leaderq.errors import ServerFailed
from leaderq.testing.freezing import freeze
from leaderq.testing.jars import Progress, class_path, to_stderr
from leaderq.testing.java import ClassArchive, find_java
from leaderq.testing.ports import LeasedPort, lease_port
from leaderq.testing.server import Server, forget, log_tail, remember, wait_until_serving

_PREFIX: Final = "leaderq-data-"


class ScratchFolder:
    """A new empty folder, readable by its owner only."""

    def __init__(self, label: str) -> None:
        _sweep()
        with _only_sweeper():
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{label}-"))
            self._lock = (self.path / ".owner").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        """Delete the folder and all in it; may be called again."""
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


class _only_sweeper:  # noqa: N801 - used as a statement
    """Between the making of a folder and its lock no sweeper may see it as ownerless."""

    def __enter__(self) -> None:
        self._file = (Path(tempfile.gettempdir()) / f"leaderq-sweep-{os.getuid()}.lock").open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *_: object) -> None:
        self._file.close()


def _sweep() -> None:
    with _only_sweeper():
        for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
            _remove_if_ownerless(folder)


def _remove_if_ownerless(folder: Path) -> None:
    try:
        with (folder / ".owner").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
    except OSError:
        return  # locked by its owner, someone else's, or just removed


# Descriptor 3 is the pipe. The watcher ignores what the server is told to do politely, and dies
# with the group.
_LAUNCH: Final = (
    "exec 3<&0; (trap '' HUP INT TERM; read -r _ <&3; {}) >/dev/null 2>&1 & exec 3<&- </dev/null;"
    ' exec "$@"'
)


class WatchedProcess:
    """A running program whose output goes to the end of ``log_path``.

    Guarantees: it does not outlive this process. A forked child of this process does not keep it
    alive and cannot stop it. ``orphaned``: what a shell does then, in its process group and with
    its id as ``$$``.
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

    def wait(self, timeout_s: float) -> bool:
        """Wait for its end; returns whether it came."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout_s)
        return self.exit_code is not None

    def end(self, *, grace_s: float) -> int:
        """End it: SIGTERM, and after ``grace_s`` seconds SIGKILL. Gives the exit code when it is
        gone; may be called again.
        """
        if os.getpid() != self._owner:
            return 0
        if grace_s > 0:
            self.send(signal.SIGCONT)
            self.send(signal.SIGTERM)
            self.wait(grace_s)
        # the watcher is in the group until the leash is let go, so the group is still ours
        if self._leash >= 0:
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


_PORT_TAKEN: Final = re.compile(r"BindException|Address already in use")
_START_TRIES: Final = 3
_GRACE_S: Final = 30.0
_GRACE_OF_DISCARDED_S: Final = 0.1  # the data go anyway; clients only see their connections end
_GRACE_TO_ARCHIVE_S: Final = 30.0

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

J = TypeVar("J", bound="JavaServer")


class JavaServerOptions(TypedDict, total=False):
    """What every server from jars takes.

    ``port``: a fixed client port instead of a free one. ``data_dir``: a folder of yours, kept,
    instead of a temporary one. ``keep_data``: leave the temporary folder (data, configuration, log)
    behind at ``stop``.
    """

    name: str
    port: int | None
    data_dir: Path | str | None
    keep_data: bool
    heap_mb: int
    jvm_options: Sequence[str]
    progress: Progress


class JavaServer(Server):
    """See :class:`leaderq.testing.server.Server` for the life of a server, and
    :class:`JavaServerOptions`.
    """

    jar_set: str
    port_names: Sequence[str] = ("client",)
    heap_mb: int

    def __init__(self, options: JavaServerOptions) -> None:
        self.name = options.get("name", self.jar_set)
        self._wanted_port = options.get("port")
        data_dir = options.get("data_dir")
        self._given_folder = Path(data_dir).resolve() if data_dir is not None else None
        self._keep_data = options.get("keep_data", False)
        heap_mb = options.get("heap_mb", self.heap_mb)
        self._jvm = [f"-Xmx{heap_mb}m", *QUICK_START, *LOGGING, *options.get("jvm_options", ())]
        self._progress = options.get("progress", to_stderr)
        self._scratch: ScratchFolder | None = None
        self._ports: dict[str, LeasedPort] = {}
        self._process: WatchedProcess | None = None
        self._archive: ClassArchive | None = None
        self._frozen = False
        self._has_served = False

    @abstractmethod
    def _prepare(self, folder: Path) -> list[str]:
        """Write the configuration into ``folder`` and give the main class with its arguments (and
        its own JVM options before).
        """

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server answers a real request now; never raises, returns within a few
        seconds.
        """

    @property
    def folder(self) -> Path:
        """Where data, configuration and log are; valid from the first ``start`` to ``stop``."""
        if self._given_folder is not None:
            return self._given_folder
        if self._scratch is None:
            raise ServerFailed(f"{self.name} was not started: it has no folder")
        return self._scratch.path

    @property
    def log_path(self) -> Path:
        """The log of all runs since the first ``start``; goes with the data."""
        return self.folder / f"{self.name}.log"

    @property
    def log_paths(self) -> Sequence[Path]:
        has_folder = self._given_folder is not None or self._scratch is not None
        return [self.log_path] if has_folder and self.log_path.exists() else []

    @property
    def port(self) -> int:
        """The client port; the same over restarts."""
        return self._port("client").number

    @property
    def address(self) -> str:
        return self._port("client").address

    @property
    def pid(self) -> int | None:
        """The process id of the server, or ``None`` if it is down."""
        return self._process.pid if self._process is not None and self.alive else None

    @property
    def alive(self) -> bool:
        return self._process is not None and self._process.exit_code is None

    def start(self: J) -> J:
        if self.alive:
            return self
        remember(self)
        try:
            for left in reversed(range(_START_TRIES)):
                if self._start_once(may_retry=left > 0):
                    break
        except BaseException:
            self.kill()
            if not self._has_served:
                self.stop()
            raise
        self._has_served = True
        return self

    def stop(self, *, keep_data: bool = False) -> None:
        self._end(grace_s=_GRACE_S if keep_data else _GRACE_OF_DISCARDED_S)
        if keep_data:
            return
        if self._scratch is not None and not self._keep_data:
            self._scratch.remove()
        self._scratch = None
        self.release_ports()
        self._has_served = False
        forget(self)

    def kill(self) -> None:
        self._end(grace_s=0)

    def freeze(self) -> None:
        if self._process is not None:
            freeze(self._process.pid)
            self._frozen = True

    def thaw(self) -> None:
        if self._process is not None:
            self._process.send(signal.SIGCONT)
        self._frozen = False

    def heal(self) -> None:
        if self._frozen:
            self.thaw()
        self.start()

    def lease_ports(self) -> None:
        """Choose the ports now, before ``start``: members of one cluster must know each other's."""
        for name in self.port_names:
            if name not in self._ports:
                self._ports[name] = lease_port(self._wanted_port if name == "client" else None)

    def release_ports(self) -> None:
        """Let the ports go."""
        for leased in self._ports.values():
            leased.release()
        self._ports.clear()

    def _port(self, name: str) -> LeasedPort:
        self.lease_ports()
        return self._ports[name]

    def _may_move(self) -> bool:
        """Whether other ports may be tried: nobody knows them yet."""
        return not self._has_served and self._wanted_port is None and self._is_alone()

    def _is_alone(self) -> bool:
        """Whether it is no member of a group; members know each other's ports, and would all
        archive their classes at once.
        """
        return True

    def _start_once(self, *, may_retry: bool) -> bool:
        self.lease_ports()
        command = self._command()
        before = self.log_path.stat().st_size if self.log_path.exists() else 0
        self._process = WatchedProcess(command, log_path=self.log_path, folder=self.folder)
        self._frozen = False
        try:
            wait_until_serving(f"{self.what} ({self.name})", self._answers, lambda: self._problem())
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
        self._archive = ClassArchive(java, jars, self.jar_set, may_make=self._is_alone())
        return [
            str(java.program),
            *self._jvm,
            *self._archive.options,
            "-cp",
            jars,
            *self._prepare(self.folder),
        ]

    def _problem(self) -> str | None:
        code = self._process.exit_code if self._process is not None else None
        return None if code is None else f"its process ended with exit code {code}"

    def _end(self, *, grace_s: float) -> None:
        if self._process is not None:
            is_drafting = (
                grace_s > 0
                and self._archive is not None
                and self._archive.is_drafting
                and self._has_served
            )
            code = self._process.end(grace_s=_GRACE_TO_ARCHIVE_S if is_drafting else grace_s)
            if self._archive is not None:
                self._archive.settle(is_whole=code != -signal.SIGKILL)
        self._process = None
        self._archive = None
        self._frozen = False
