"""The life of a server that ``leaderq.testing`` runs; it is the same for ZooKeeper and Kafka, from
jars and in containers.

States: *new* (no process, no data), *serving*, *frozen*, *down* (killed; data and port kept).
``start`` leads from new and down to serving, and returns when a real request was answered. ``stop``
leads from any state to new. A server that cannot start raises :class:`~leaderq.errors.ServerFailed`
with its last log lines, and leaves nothing behind.

The servers of this process are stopped at its exit. Their data are in folders, each with a locked
file. If an owner was killed, the lock of its folder is free; then the folder is removed when the
next one is made.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import os
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from leaderq.base.arguments import at_least, require
from leaderq.errors import ServerFailed
from leaderq.testing.ports import HOST, LeasedPort, lease_port
from leaderq.testing.waiting import patience

failure_listeners: Final[list[Callable[[Server, BaseException], None]]] = []
"""Called with a server whose ``with`` block ends in an error, before its data and log are
removed.
"""

_started: Final[dict[Server, int]] = {}
"""Servers, each with the id of the process at whose exit they are stopped, so that no data stay
behind.
"""


def started_servers() -> list[Server]:
    """The servers that this process, not its parent, has started and has not stopped."""
    return [server for server, owner in list(_started.items()) if owner == os.getpid()]


@atexit.register
def _stop_all() -> None:
    for server in started_servers():
        server.stop()


START_TIMEOUT_S: Final = 120.0
_LOG_LINES: Final = 25

S = TypeVar("S", bound="Server")


class Server(ABC):
    """A server, or several that act as one. One thread at a time may start or stop it."""

    name: str = "server"
    what: str = "a server"

    @property
    @abstractmethod
    def address(self) -> str:
        """Where clients connect: ``host:port``, several separated by commas; the same until
        ``stop``.
        """

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the process exists; also true if it is frozen."""

    @property
    @abstractmethod
    def log_paths(self) -> Sequence[Path]:
        """The log files that exist now."""

    @abstractmethod
    def start(self: S) -> S:
        """Start the server, or start it again on the same data and port; return at once if it is
        alive.
        """

    @abstractmethod
    def stop(self, *, keep_data: bool = False) -> None:
        """Stop the server gracefully; remove its data, unless ``keep_data``. May be called
        again.
        """

    @abstractmethod
    def kill(self) -> None:
        """Send SIGKILL; return when the process is gone. Data and port are kept for ``start``."""

    @abstractmethod
    def freeze(self) -> None:
        """Send SIGSTOP, and wait until the process stands still: connections stay open, nothing is
        answered.
        """

    @abstractmethod
    def thaw(self) -> None:
        """SIGCONT."""

    def heal(self) -> None:
        """Let the server serve again, whatever was done to it: thaw it if it is frozen, start it if
        it is down.
        """
        self.thaw()
        self.start()

    def restart(self: S) -> S:
        """Stop the server gracefully, and start it on the same data and port."""
        self.stop(keep_data=True)
        return self.start()

    def __repr__(self) -> str:
        where = f"at {self.address}" if self.alive else "not running"
        return f"<{type(self).__name__} {self.name!r}, {where}>"

    def __enter__(self: S) -> S:
        return self.start()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is not None:
            for listener in failure_listeners:
                listener(self, error)
        self.stop()


def log_tail(path: Path, *, since: int = 0) -> str:
    """The last lines that ``path`` got after it was ``since`` bytes long."""
    try:
        with path.open("rb") as log:
            log.seek(max(since, path.stat().st_size - 64_000))
            text = log.read().decode(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-_LOG_LINES:]) or "(the log is empty)"


def wait_until_serving(
    what: str, answers: Callable[[], bool], problem: Callable[[], str | None]
) -> None:
    """Wait until ``answers`` returns true.

    :raises ServerFailed: ``problem`` returned a sentence, or 120 s (times the patience) have
        passed.
    """
    deadline = time.monotonic() + START_TIMEOUT_S * patience()
    while not answers():
        trouble = problem()
        if trouble is None and time.monotonic() >= deadline:
            trouble = f"it did not answer within {START_TIMEOUT_S * patience():g} s"
        if trouble is not None:
            raise ServerFailed(f"{what} did not start: {trouble}")
        time.sleep(0.03)


_PREFIX: Final = "leaderq-data-"


class ScratchFolder:
    """A new empty folder, readable by its owner only."""

    def __init__(self, label: str) -> None:
        # Between its making and its lock no sweeper may see the folder as ownerless.
        with (Path(tempfile.gettempdir()) / f"leaderq-sweep-{os.getuid()}.lock").open("w") as alone:
            fcntl.flock(alone, fcntl.LOCK_EX)
            _sweep()
            self.path = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{label}-"))
            self._lock = (self.path / ".owner").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX)

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self._lock.close()


def _sweep() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        # locked by its owner, someone else's, or just removed
        with contextlib.suppress(OSError), (folder / ".owner").open("r+") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)


Own = TypeVar("Own", bound="OwnServer")


class OwnServer(Server):
    """One server that this process runs; its ports and data are kept from ``start`` to ``stop``.

    ``peers`` are the members of its cluster, including this server.
    """

    port_names: Sequence[str] = ("client",)

    def __init__(self, name: str, port: int | None = None) -> None:
        self.name = name
        self.peers: Sequence[Any] = (self,)
        self._host = HOST
        self._wanted_port = port
        self._ports: dict[str, LeasedPort] = {}
        self._scratch: ScratchFolder | None = None
        self._has_served = False

    @abstractmethod
    def _launch(self) -> None:
        """Start the server, and return when it serves; raise ``ServerFailed`` with the end of its
        log.
        """

    @abstractmethod
    def _end(self, *, keep_data: bool) -> None:
        """Stop what runs; gracefully, if the data are kept."""

    @abstractmethod
    def _answers(self) -> bool:
        """Whether the server answers a real request; never raises, returns within a few seconds."""

    @abstractmethod
    def _problem(self) -> str | None:
        """Why the server will never answer; ``None`` if no reason is known."""

    @property
    def number(self) -> int:
        """The server's place in its cluster, from 1."""
        return self.peers.index(self) + 1

    @property
    def is_alone(self) -> bool:
        """Whether the server is in no cluster, so that no peer knows its ports."""
        return len(self.peers) == 1

    @property
    def port(self) -> int:
        """The client port; it is the same after restarts."""
        return self._port("client").number

    @property
    def address(self) -> str:
        return f"{self._host}:{self.port}"

    def start(self: Own) -> Own:
        if self.alive:
            return self
        _started[self] = os.getpid()
        try:
            self._launch()
        except BaseException:
            if self._has_served:
                self.kill()
            else:
                self.stop()
            raise
        self._has_served = True
        return self

    def stop(self, *, keep_data: bool = False) -> None:
        self._end(keep_data=keep_data)
        if keep_data:
            return
        if self._scratch is not None:
            self._scratch.remove()
            self._scratch = None
        self.release_ports()
        self._has_served = False
        _started.pop(self, None)

    def lease_ports(self) -> None:
        """Choose the ports now, before ``start``, because the members of a cluster must know each
        other's.
        """
        for name in self.port_names:
            if name not in self._ports:
                self._ports[name] = lease_port(self._wanted_port if name == "client" else None)

    def release_ports(self) -> None:
        for leased in self._ports.values():
            leased.release()
        self._ports.clear()

    def _port(self, name: str) -> LeasedPort:
        self.lease_ports()
        return self._ports[name]


T = TypeVar("T")


def all_at_once(act: Callable[[T], object], targets: Sequence[T]) -> None:
    """Call ``act`` with all targets in parallel; wait for all calls, then raise the first error."""
    with ThreadPoolExecutor(max(1, len(targets)), thread_name_prefix="leaderq-servers") as pool:
        futures = [pool.submit(act, target) for target in targets]
    for future in futures:
        future.result()


M = TypeVar("M", bound=Server)
G = TypeVar("G", bound="ServerGroup[Any]")


class ServerGroup(Server, Generic[M]):
    """Servers that act as one; ``members`` can be killed, frozen and started one by one."""

    def __init__(self, name: str, members: Sequence[M]) -> None:
        self.name = name
        self.members = list(members)

    @property
    def address(self) -> str:
        return ",".join(member.address for member in self.members)

    @property
    def alive(self) -> bool:
        return all(member.alive for member in self.members)

    @property
    def log_paths(self) -> Sequence[Path]:
        return [path for member in self.members for path in member.log_paths]

    def prepare(self) -> None:
        """Do what must be done for all members before one of them can start."""

    def start(self: G) -> G:
        self.prepare()
        try:
            all_at_once(lambda member: member.start(), self.members)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, *, keep_data: bool = False) -> None:
        all_at_once(lambda member: member.stop(keep_data=keep_data), self.members)

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    def freeze(self) -> None:
        for member in self.members:
            member.freeze()

    def thaw(self) -> None:
        for member in self.members:
            member.thaw()

    def heal(self) -> None:
        self.thaw()
        all_at_once(lambda member: member.start(), self.members)


P = TypeVar("P", bound=OwnServer)


class PeerGroup(ServerGroup[P]):
    """``size`` servers of one ``kind`` that know each other; each gets ``options``."""

    kind: type[OwnServer]
    usual_options: Mapping[str, Any] = {}

    def __init__(self, size: int = 3, *, name: str | None = None, **options: Any) -> None:
        require(at_least("size", size, 1))
        name = name or self.kind.what.lower()
        make: Callable[..., Any] = self.kind
        members = [
            make(**{**self.usual_options, **options, "name": f"{name}-{number}"})
            for number in range(1, size + 1)
        ]
        super().__init__(name, members)
        for member in members:
            member.peers = members

    def prepare(self) -> None:
        for member in self.members:
            member.lease_ports()
