"""A candidate's thread that stands still: what a slow listener, or the processor, does to it."""

from __future__ import annotations

import threading
from types import TracebackType

from leaderq.events import Event, EventBus


class Stall:
    """Holds the thread that publishes the next event of class ``kind``, until ``go``.

    Most events of a candidate are published on its own thread. ``SessionChanged`` is not, and must
    not be held. Leaving the block lets the thread go on as well.
    """

    def __init__(self, bus: EventBus, kind: type[Event]) -> None:
        self._bus = bus
        self._kind = kind
        self._reached = threading.Event()
        self._go = threading.Event()

    def await_reached(self) -> None:
        """Return when the thread stands still, which must be within 30 s."""
        assert self._reached.wait(30), f"no {self._kind.__name__} was published"

    def go(self) -> None:
        """Let the thread go on."""
        self._go.set()

    def __enter__(self) -> Stall:
        self._unsubscribe = self._bus.subscribe(self._kind, self._hold)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._unsubscribe()
        self.go()

    def _hold(self, event: Event) -> None:
        if not self._reached.is_set():
            self._reached.set()
            self._go.wait(120)
