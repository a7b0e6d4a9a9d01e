"""Records that are written together, and what becomes of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from leaderq.producing.journal.record import EXPIRY_BYTES, HEAD_BYTES
from leaderq.producing.journal.segment_header import HEADER_BYTES
from leaderq.producing.journal.waiting import Signal

log = logging.getLogger("leaderq.producing.journal")

Bytes = bytes | bytearray | memoryview
OnDurable = Callable[["int | None", "Exception | None"], object]
"""Called with the id of a record once it is as durable as the policy says, or with ``None`` and why it is not stored."""


class Batch:
    """Joined by callers under the journal's gate, then written by one of them or by the writer's thread.

    ``first_id`` is set when it is stored, ``error`` when it is not.
    """

    __slots__ = (
        "_waiting",
        "callbacks",
        "error",
        "expiries",
        "first_id",
        "is_done",
        "payloads",
        "size",
        "sync",
    )

    def __init__(self, *, sync: bool = False) -> None:
        self.payloads: list[bytes] = []
        self.size = 0
        self.expiries: dict[int, int] = {}
        self.callbacks: list[OnDurable | None] = []
        self.sync = sync
        self.first_id = 0
        self.error: Exception | None = None
        self.is_done = False
        self._waiting: list[Signal] = []

    def add_callback(self, position: int, callback: OnDurable) -> None:
        """Have it called for the record at this position, which is behind all that have one. Under the gate."""
        if position > len(self.callbacks):
            self.callbacks.extend([None] * (position - len(self.callbacks)))
        self.callbacks.append(callback)

    def finish(self) -> None:
        """All is said; wake who waits. Under the gate."""
        self.is_done = True
        waiting, self._waiting = self._waiting, []
        for signal in waiting:
            signal.give()

    def signal(self) -> Signal:
        """What one caller waits for; each has its own. Under the gate."""
        signal = Signal()
        if self.is_done:
            signal.give()
        else:
            self._waiting.append(signal)
        return signal

    def tell(self) -> None:
        """Call the callbacks, in the order of the records. Outside of the gate: they may call the journal."""
        error = self.error
        for number, callback in enumerate(self.callbacks, self.first_id):
            if callback is not None:
                try:
                    callback(None if error else number, error)
                except BaseException:  # also SystemExit: the writer's thread must go on
                    log.exception("journal: a callback for a stored record failed; the work goes on")


def batch_of(payloads: Iterable[Bytes], expires_us: int | None) -> Batch:
    """A batch of one's own, with room for the header of a segment that it may have to begin."""
    batch = Batch()
    batch.payloads = [payload if type(payload) is bytes else bytes(memoryview(payload)) for payload in payloads]
    batch.size = HEADER_BYTES + HEAD_BYTES * len(batch.payloads) + sum(map(len, batch.payloads))
    if expires_us is not None:
        batch.expiries = dict.fromkeys(range(len(batch.payloads)), expires_us)
        batch.size += EXPIRY_BYTES * len(batch.payloads)
    return batch


@contextmanager
def contained(what: str) -> Iterator[None]:
    """A fault of somebody else's code, or a chore's, must not stop the writing."""
    try:
        yield
    except Exception:
        log.exception("journal: %s failed; the work goes on", what)
