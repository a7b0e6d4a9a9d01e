"""The life of a server that ``leaderq.testing`` runs, the same for ZooKeeper and Kafka, jar and container.

States: *new* (no process, no data), *serving*, *frozen*, *down* (killed; data and port kept). ``start`` leads from new and down to
serving, and returns only when a real request was answered; ``stop`` leads from anywhere to new. A server that cannot start, or
dies while it starts, raises :class:`~leaderq.errors.ServerFailed` with its last log lines, and nothing of it stays behind.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, TypeVar

from leaderq.errors import ServerFailed
from leaderq.testing.registry import failure_listeners
from leaderq.testing.waiting import patience

START_TIMEOUT_S: Final = 120.0
_LOG_LINES: Final = 25

S = TypeVar("S", bound="Server")


class Server(ABC):
    """A server, or several that act as one. Not to be started and stopped from two threads at once."""

    name: str = "server"
    what: str = "a server"

    @property
    @abstractmethod
    def address(self) -> str:
        """Where clients connect: ``host:port``, or several with commas; the same over all restarts until ``stop``."""

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
        """Stop it gracefully and remove its data, unless ``keep_data``: then ``start`` goes on with them. May be called again."""

    @abstractmethod
    def kill(self) -> None:
        """SIGKILL; returns when it is gone. Data and port are kept for ``start``."""

    @abstractmethod
    def freeze(self) -> None:
        """SIGSTOP: connections stay open, nothing is answered."""

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

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
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


def wait_until_serving(what: str, answers: Callable[[], bool], problem: Callable[[], str | None]) -> None:
    """Wait until ``answers`` says so.

    :raises ServerFailed: ``problem`` gave a sentence, or the time (120 s times the patience) is over.
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
