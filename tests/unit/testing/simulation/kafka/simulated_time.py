"""Time that passes only when somebody waits, for clients on one thread."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leaderq import clock
from leaderq.testing.simulation.kafka.network import Passage
from leaderq.threads import primitives


class ManualTime:
    """A clock that is set by hand, or by whoever sleeps."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s

    def pass_(self, seconds: float) -> None:
        self.now_s += seconds

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Let the program wait in this time."""
        patch.setattr(clock, "now_s", self)
        patch.setattr(clock, "now_ms", lambda: int(self.now_s * 1000))
        patch.setattr(clock, "sleep", self.pass_)
        patch.setattr(primitives, "Event", lambda: _Event(self))


class _Event:
    def __init__(self, time: ManualTime) -> None:
        self._time = time
        self._is_set = False

    def set(self) -> None:
        self._is_set = True

    def clear(self) -> None:
        self._is_set = False

    def wait(self, seconds: float) -> bool:
        if not self._is_set:
            self._time.pass_(seconds)
        return self._is_set


class ScriptedNetwork:
    """Each request goes as the script says, then at once."""

    def __init__(self) -> None:
        self.script: list[Passage] = []
        self.on_request: Callable[[str, int], None] = lambda _client, _broker: None
        self.requests = 0

    def request(self, client: str, broker: int) -> Passage:
        self.requests += 1
        self.on_request(client, broker)
        return self.script.pop(0) if self.script else Passage()
