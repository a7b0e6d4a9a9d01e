"""Servers that run already and are only used: ``LEADERQ_ZOOKEEPER`` and ``LEADERQ_KAFKA``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from leaderq.errors import ConfigurationError
from leaderq.testing.server import Server


def _refuse(sentence: str) -> NoReturn:
    raise ConfigurationError(sentence)


class GivenServer(Server):
    """A server of someone else's. ``start`` and ``stop`` leave it alone; it cannot be killed, frozen or restarted.

    ``on_fault`` is called with a sentence when a fault is asked for (a test plugin skips the test there).
    """

    def __init__(self, what: str, address: str, *, source: str, on_fault: Callable[[str], NoReturn] = _refuse) -> None:
        self.what = what
        self.name = what.lower()
        self._address = address
        self._source = source
        self.on_fault = on_fault

    @property
    def address(self) -> str:
        return self._address

    @property
    def alive(self) -> bool:
        return True

    @property
    def log_paths(self) -> Sequence[Path]:
        return []

    def start(self) -> GivenServer:
        return self

    def stop(self, *, keep_data: bool = False) -> None:
        if keep_data:
            self._no_faults("stopped and started")

    def kill(self) -> None:
        self._no_faults("killed")

    def freeze(self) -> None:
        self._no_faults("frozen")

    def thaw(self) -> None:
        self._no_faults("thawed")

    def heal(self) -> None:
        return

    def _no_faults(self, deed: str) -> NoReturn:
        self.on_fault(f"{self.what} is given by {self._source}; a given server is not {deed}")
