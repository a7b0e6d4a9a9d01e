"""Group commit: what arrives while a write is under way is written together by the next.

Callers join the last batch in the line under the journal's gate; one thread writes the batches in
that order, so records are stored in the order in which they were accepted. A batch is stored as a
whole or, as far as anybody is told, not at all; the next one is tried whatever became of it.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition, RLock
from typing import Final

from leaderq.errors import LeaderqError
from leaderq.producing.journal.records import EXPIRY_BYTES, HEAD_BYTES
from leaderq.producing.journal.segments import HEADER_BYTES
from leaderq.threads import Service, Waker

log = logging.getLogger("leaderq.producing.journal")

GROUP_BYTES: Final = 1 << 20
"""No batch gets larger than this, or than a segment, by others joining it."""
WAITING_BYTES: Final = 16 << 20
"""Whoever would make more wait to be written waits until there is room."""
CHORES_EVERY_S: Final = 0.5

Bytes = bytes | bytearray | memoryview
OnDurable = Callable[["int | None", "Exception | None"], object]
"""Called with the id of a record once it is as durable as the policy says, or with ``None`` and the
error for which it is not stored."""
Action = Callable[[], None]


@dataclass(slots=True, eq=False)
class CommitBatch:
    """Records that are written together, and what became of them: ``first_id``, or ``error``.

    Guarded by the journal's gate until the writer has taken it from the line.
    """

    sync: bool = False
    size: int = HEADER_BYTES
    """Bytes it takes at most: it may have to begin a segment."""
    payloads: list[bytes] = field(default_factory=list)
    expiries: dict[int, int] = field(default_factory=dict)
    callbacks: list[OnDurable | None] = field(default_factory=list)
    first_id: int = 0
    error: LeaderqError | None = None
    is_done: bool = False
    waiting: list[Waker] = field(default_factory=list)

    def add(self, payload: bytes, expires_us: int | None) -> None:
        if expires_us is not None:
            self.expiries[len(self.payloads)] = expires_us
            self.size += EXPIRY_BYTES
        self.payloads.append(payload)
        self.size += HEAD_BYTES + len(payload)

    def add_callback(self, callback: OnDurable) -> None:
        self.callbacks.extend([None] * (len(self.payloads) - 1 - len(self.callbacks)))
        self.callbacks.append(callback)

    def tell(self) -> None:
        """Call the callbacks in the order of the records, without the gate: they may call the
        journal."""
        error = self.error
        for number, callback in enumerate(self.callbacks, self.first_id):
            if callback is not None:
                try:
                    callback(None if error else number, error)
                except BaseException:  # also SystemExit: the writer's thread must go on
                    log.exception("callback for a stored record failed")


def batch_of(payloads: Iterable[Bytes], expires_us: int | None) -> CommitBatch:
    batch = CommitBatch()
    batch.payloads = [one if type(one) is bytes else bytes(memoryview(one)) for one in payloads]
    count = len(batch.payloads)
    batch.size += HEAD_BYTES * count + sum(map(len, batch.payloads))
    if expires_us is not None:
        batch.expiries = dict.fromkeys(range(count), expires_us)
        batch.size += EXPIRY_BYTES * count
    return batch


class Committer:
    """The line of batches, and the thread that writes them. Methods are called under ``gate``
    unless they say otherwise."""

    def __init__(self, gate: RLock, *, group_bytes: int = GROUP_BYTES) -> None:
        self._gate = gate
        self.room = Condition(gate)
        """Notified when less waits to be written, see :attr:`is_crowded`."""
        self.waiting_bytes = 0
        self._group_bytes = group_bytes
        self._line: deque[CommitBatch] = deque()
        self._kicked = False
        self._upkeep_wanted = False
        self._service: Service | None = None

    def start(
        self,
        *,
        store: Callable[[CommitBatch], None],
        settle: Callable[[CommitBatch], None],
        chores: Action,
        upkeep: Action,
        upkeep_every_s: float,
    ) -> None:
        """Start the thread. ``store`` sets what became of a batch, and raises nothing; ``settle``
        is called under the gate after it. Between two batches: ``chores`` every half second and
        when kicked, ``upkeep`` every so many seconds and when wanted."""

        def run(service: Service) -> None:
            upkeep_at = time.monotonic() + upkeep_every_s
            chores_at = time.monotonic() + CHORES_EVERY_S
            while True:
                batch = self._next()
                if batch is not None:
                    self._write(batch, store, settle)
                elif service.is_stopping:
                    return
                elif not (self._kicked or self._upkeep_wanted):
                    service.wait(min(chores_at, upkeep_at) - time.monotonic())
                if self._upkeep_wanted or time.monotonic() >= upkeep_at:
                    self._upkeep_wanted = False
                    with contained("upkeep"):
                        upkeep()
                    upkeep_at = time.monotonic() + upkeep_every_s
                if self._kicked or time.monotonic() >= chores_at:
                    self._kicked = False
                    with contained("a chore"):
                        chores()
                    chores_at = time.monotonic() + CHORES_EVERY_S

        self._service = Service("leaderq-journal", run)
        self._service.start()

    def line_up(self, batch: CommitBatch) -> None:
        self._line.append(batch)
        self.waiting_bytes += batch.size
        self._wake()

    def join(self, payload: bytes, expires_us: int | None) -> CommitBatch:
        """Have a record written with the batch that waits, or a new one; return that batch."""
        batch = self._line[-1] if self._line else None
        size = HEAD_BYTES + len(payload)
        if batch is None or batch.sync or batch.size + size > self._group_bytes:
            batch = CommitBatch()
            self.line_up(batch)
        before = batch.size
        batch.add(payload, expires_us)
        self.waiting_bytes += batch.size - before
        return batch

    @property
    def is_crowded(self) -> bool:
        return self.waiting_bytes > WAITING_BYTES

    @property
    def is_writer(self) -> bool:
        """Whether this is the writer's thread, which must not wait for itself. No gate needed."""
        return self._service is not None and self._service.is_current

    def kick(self) -> None:
        if not self._kicked:
            self._kicked = True
            self._wake()

    def want_upkeep(self) -> None:
        self._upkeep_wanted = True
        self._wake()

    def leave(self, timeout_s: float | None) -> bool:
        """Write what waits, and end the thread; return whether that was done in time. Without the
        gate."""
        return self._service is None or self._service.stop(timeout_s)

    def _wake(self) -> None:
        if self._service is not None:
            self._service.wake()

    def _next(self) -> CommitBatch | None:
        with self._gate:
            return self._line.popleft() if self._line else None

    def _write(
        self,
        batch: CommitBatch,
        store: Callable[[CommitBatch], None],
        settle: Callable[[CommitBatch], None],
    ) -> None:
        try:
            store(batch)
        finally:
            with self._gate:
                self.waiting_bytes = self.waiting_bytes - batch.size if self._line else 0
                settle(batch)
                batch.is_done = True
                for waker in batch.waiting:
                    waker.wake()
                if not self.is_crowded:
                    self.room.notify_all()
        batch.tell()


@contextmanager
def contained(what: str) -> Iterator[None]:
    """Log what fails, and go on: a fault in a chore must not stop the writing."""
    try:
        yield
    except Exception:
        log.exception("journal step failed step=%s", what)
