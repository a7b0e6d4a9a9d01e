"""The life of a server that ``leaderq.testing`` runs, the same for ZooKeeper and Kafka, jar and
container.

States: *new* (no process, no data), *serving*, *frozen*, *down* (killed; data and port kept).
``start`` leads from new and down to serving, and returns only when a real request was answered;
``stop`` leads from anywhere to new. A server that cannot start, or dies while it starts, raises
:class:`~leaderq.errors.ServerFailed` with its last log lines, and nothing of it stays behind.

The servers that this process runs are stopped at its exit. Several may act as one: an ensemble, a
cluster.
"""

from __future__ import annotations

import atexit
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Generic, TypeVar

from leaderq.errors import ServerFailed
from leaderq.testing.waiting import patience

failure_listeners: Final[list[Callable[[Server, BaseException], None]]] = []
"""Called with a server whose ``with`` block ends in an error, before its log goes with its data."""

_started: Final[dict[Server, int]] = {}


def remember(server: Server) -> None:
    """Stop ``server`` at the exit of this process, so that its data do not stay behind."""
    _started[server] = os.getpid()


def forget(server: Server) -> None:
    """The opposite of :func:`remember`."""
    _started.pop(server, None)


def started_servers() -> list[Server]:
    """The servers that were started and not stopped, by this process and not by the one that forked
    it.
    """
    return [server for server, owner in list(_started.items()) if owner == os.getpid()]


@atexit.register
def _stop_all() -> None:
    for server in started_servers():
        server.stop()


START_TIMEOUT_S: Final = 120.0
_LOG_LINES: Final = 25

S = TypeVar("S", bound="Server")


class Server(ABC):
    """A server, or several that act as one. Not to be started and stopped from two threads at
    once.
    """

    name: str = "server"
    what: str = "a server"

    @property
    @abstractmethod
    def address(self) -> str:
        """Where clients connect: ``host:port``, or several with commas; the same over all restarts
        until ``stop``.
        """

    @property
    @abstractmethod
    def alive(self) -> bool:
        """Whether the process is there; a frozen one is."""

    @property
    @abstractmethod
    def log_paths(self) -> Sequence[Path]:
        """The log files there are now."""

    @abstractmethod
    def start(self: S) -> S:
        """Start it, or start it again on the same data and port; returns at once if it is alive."""

    @abstractmethod
    def stop(self, *, keep_data: bool = False) -> None:
        """Stop it gracefully and remove its data, unless ``keep_data``: then ``start`` goes on with
        them. May be called again.
        """

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL; returns when it is gone. Data and port are kept for ``start``."""

    @abstractmethod
    def freeze(self) -> None:
        """SIGSTOP, and wait until it stands still: connections stay open, nothing is answered."""

    @abstractmethod
    def thaw(self) -> None:
        """SIGCONT."""

    @abstractmethod
    def heal(self) -> None:
        """Whatever was done to it, let it serve again: thaw it if frozen, start it if down."""

    def restart(self: S) -> S:
        """Stop it gracefully and start it on the same data and port."""
        self.stop(keep_data=True)
        return self.start()

    def __enter__(self: S) -> S:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            for listener in failure_listeners:
                listener(self, error)
        self.stop()


def log_tail(path: Path, *, since: int = 0, lines: int = _LOG_LINES) -> str:
    """The last lines that ``path`` got since it was ``since`` bytes long."""
    try:
        with path.open("rb") as log:
            log.seek(max(since, path.stat().st_size - 64_000))
            text = log.read().decode(errors="replace")
    except OSError:
        return "(no log)"
    return "\n".join(text.splitlines()[-lines:]) or "(the log is empty)"


def wait_until_serving(
    what: str, answers: Callable[[], bool], problem: Callable[[], str | None]
) -> None:
    """Wait until ``answers`` says so.

    :raises ServerFailed: ``problem`` gave a sentence, or the time (120 s times the patience) is
      over.
    """
    deadline = time.monotonic() + START_TIMEOUT_S * patience()
    while not answers():
        trouble = problem()
        if trouble is None and time.monotonic() >= deadline:
            trouble = f"it did not answer within {START_TIMEOUT_S * patience():g} s"
        if trouble is not None:
            raise ServerFailed(f"{what} did not start: {trouble}")
        time.sleep(0.03)


T = TypeVar("T")


def all_at_once(act: Callable[[T], object], targets: Sequence[T]) -> None:
    """``act`` on all targets in parallel; waits for all, then raises the first error."""
    with ThreadPoolExecutor(max(1, len(targets)), thread_name_prefix="leaderq-servers") as pool:
        futures = [pool.submit(act, target) for target in targets]
    for future in futures:
        future.result()


M = TypeVar("M", bound=Server)
G = TypeVar("G", bound="ServerGroup[Any]")


class ServerGroup(Server, Generic[M]):
    """``members`` are the single servers, to be killed, frozen and started one by one; the methods
    of the group act on all.
    """

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
        """What must be settled for all before one can start."""

    def waves(self) -> Sequence[Sequence[M]]:
        """The members in the order in which they start; those of one wave start together."""
        return [self.members]

    def start(self: G) -> G:
        self.prepare()
        try:
            for wave in self.waves():
                all_at_once(lambda member: member.start(), wave)
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
