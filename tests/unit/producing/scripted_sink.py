"""A sink in memory that does what the test says: one line of the script for each call, then as the
last line says.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from leaderq.errors import SinkAway, SinkBroken
from leaderq.producing import ALL_CONFIRMED, BatchOutcome, BufferedProducer, Retry

AT_ONCE = Retry(first_s=0.001, most_s=0.002)
Make = Callable[..., BufferedProducer]
Line = Callable[[Sequence[Any]], BatchOutcome]


def takes(batch: Sequence[Any]) -> BatchOutcome:
    return ALL_CONFIRMED


def is_away(batch: Sequence[Any]) -> BatchOutcome:
    raise SinkAway("away, says the script")


def is_broken(batch: Sequence[Any]) -> BatchOutcome:
    raise SinkBroken("broken, says the script")


def refuses(*positions: int) -> Line:
    return lambda batch: BatchOutcome(
        {at: ValueError(f"refused {batch[at]!r}") for at in positions if at < len(batch)}
    )


class ScriptedSink:
    """``confirmed`` are the records it has acknowledged, in order; ``calls`` the batches it was
    asked about; ``handed`` those it was given. What was handed over behind a batch that it did not
    take, it does not take either.
    """

    def __init__(self, *script: Line) -> None:
        self.script = list(script) or [takes]
        self.confirmed: list[Any] = []
        self.calls: list[list[Any]] = []
        self.open = threading.Event()
        self.open.set()
        self.is_closed = False
        self.handed: list[list[Any]] = []
        self._failures = 0
        self._lock = threading.Lock()

    def shut(self) -> None:
        """Calls wait from now on, until ``open`` is set."""
        self.open.clear()

    def now(self, *script: Line) -> None:
        with self._lock:
            self.script = list(script)

    def hand_over(self, batch: Sequence[Any], timeout_s: float) -> Callable[[], BatchOutcome]:
        self.handed.append(list(batch))
        failures = self._failures

        def outcome() -> BatchOutcome:
            if failures != self._failures:
                return BatchOutcome(again=range(len(batch)), error=SinkAway("behind one"))
            try:
                found = self.send(batch, timeout_s)
            except BaseException:
                self._failures += 1
                raise
            self._failures += bool(found.again)
            return found

        return outcome

    def send(self, batch: Sequence[Any], timeout_s: float) -> BatchOutcome:
        if not self.open.wait(timeout_s):
            raise SinkAway("shut by the test")
        with self._lock:
            line = self.script.pop(0) if len(self.script) > 1 else self.script[0]
            self.calls.append(list(batch))
            outcome = line(batch)
            self.confirmed += [
                record
                for at, record in enumerate(batch)
                if at not in outcome.refused and at not in set(outcome.again)
            ]
            return outcome

    def close(self, timeout_s: float) -> None:
        self.is_closed = True
