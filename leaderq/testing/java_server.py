"""A server that is one Java process on this host: folder, ports, process and readiness; what to run is the subclass's business."""

from __future__ import annotations

import re
import signal
from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar

from leaderq.errors import ServerFailed
from leaderq.testing.class_archive import ClassArchive
from leaderq.testing.jars import Progress, class_path, to_stderr
from leaderq.testing.java import find_java
from leaderq.testing.ports import LeasedPort, lease_port
from leaderq.testing.process import WatchedProcess
from leaderq.testing.registry import forget, remember
from leaderq.testing.scratch import ScratchFolder
from leaderq.testing.server import Server, log_tail, wait_until_serving

_PORT_TAKEN: Final = re.compile(r"BindException|Address already in use")
_START_TRIES: Final = 3
_GRACE_S: Final = 30.0
_GRACE_OF_DISCARDED_S: Final = 2.0  # the data go anyway; clients only see their connections end
_GRACE_TO_ARCHIVE_S: Final = 30.0

# Tests start servers often and keep them briefly: compile little, collect serially, share the JDK's classes.
QUICK_START: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-XX:-UsePerfData")
LOGGING: Final = tuple(
    f"-Dorg.slf4j.simpleLogger.{setting}"
    for setting in ("defaultLogLevel=info", "showDateTime=true", "dateTimeFormat=HH:mm:ss.SSS", "showShortLogName=true")
)

J = TypeVar("J", bound="JavaServer")


class JavaServer(Server):
    """See :class:`leaderq.testing.server.Server` for the life of a server.

    ``port``: a fixed client port instead of a free one. ``data_dir``: a folder of yours, kept, instead of a temporary one.
    ``keep_data``: leave the temporary folder (data, configuration, log) behind at ``stop``.
    """

    jar_set: str
    port_names: Sequence[str] = ("client",)

    def __init__(
        self,
        *,
        port: int | None,
        data_dir: Path | str | None,
        keep_data: bool,
        heap_mb: int,
        jvm_options: Sequence[str],
        progress: Progress = to_stderr,
    ) -> None:
        self._wanted_port = port
        self._given_folder = Path(data_dir).resolve() if data_dir is not None else None
        self._keep_data = keep_data
        self._jvm = [f"-Xmx{heap_mb}m", *QUICK_START, *LOGGING, *jvm_options]
        self._progress = progress
        self._scratch: ScratchFolder | None = None
        self._ports: dict[str, LeasedPort] = {}
        self._process: WatchedProcess | None = None
        self._archive: ClassArchive | None = None
        self._frozen = False
        self._has_served = False

    @abstractmethod
    def _prepare(self, folder: Path) -> list[str]:
        """Write the configuration into ``folder`` and give the main class with its arguments (and its own JVM options before)."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server answers a real request now; never raises, returns within a few seconds."""

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
            self._process.send(signal.SIGSTOP)
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
        """Whether it is no member of a group; members know each other's ports, and would all archive their classes at once."""
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
        return [str(java.program), *self._jvm, *self._archive.options, "-cp", jars, *self._prepare(self.folder)]

    def _problem(self) -> str | None:
        code = self._process.exit_code if self._process is not None else None
        return None if code is None else f"its process ended with exit code {code}"

    def _end(self, *, grace_s: float) -> None:
        if self._process is not None:
            is_drafting = grace_s > 0 and self._archive is not None and self._archive.is_drafting and self._has_served
            code = self._process.end(grace_s=_GRACE_TO_ARCHIVE_S if is_drafting else grace_s)
            if self._archive is not None:
                self._archive.settle(is_whole=code != -signal.SIGKILL)
        self._process = None
        self._archive = None
        self._frozen = False
