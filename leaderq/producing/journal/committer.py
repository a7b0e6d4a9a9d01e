"""Group commit: whatever arrives while a write is under way is written together by the next.

One writes at a time: who holds the *pen*. A caller of ``append`` that finds it free writes its own record itself, so a lone
caller pays for no change of threads (but not in the main thread, see :meth:`Committer.write`). Everyone else joins the batch
that waits and is told; when the pen is put down with something waiting, the writer's thread takes it. So records are stored
in the order in which they were accepted, whoever writes them.

Failures: a batch is stored as a whole or, as far as anybody is told, not at all; the next one is tried afresh.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Final

from leaderq.errors import JournalSlow
from leaderq.producing.journal.batch import Batch, contained
from leaderq.producing.journal.segment_header import HEADER_BYTES
from leaderq.producing.journal.waiting import Signal, Waiting

GROUP_BYTES: Final = 1 << 20
"""No batch gets larger than this, or than a segment, by others joining it."""
WAITING_BYTES: Final = 16 << 20
"""Who would make more wait to be written waits until there is room."""
CHORES_EVERY_S: Final = 0.5


class Pen(Enum):
    """Who writes."""

    FREE = 0
    CALLER = 1
    THREAD = 2


class Committer:
    """Takes batches in order and has each written by ``store`` (which sets what became of it, and raises nothing).

    ``settle(batch)`` is called under the gate when it is written; ``chores`` now and then by the thread, and when kicked;
    ``with_pen`` by the thread while nobody writes, every so many seconds if that is given, and when wanted.
    """

    def __init__(
        self,
        gate: threading.Lock,
        *,
        store: Callable[[Batch], None],
        settle: Callable[[Batch], None],
        chores: Callable[[], None],
        with_pen: Callable[[], None],
        with_pen_every_s: float | None,
        group_bytes: int = GROUP_BYTES,
    ) -> None:
        self._gate = gate
        self._work = threading.Condition(gate)
        self.room = Waiting()
        """Who waits until less is to be written, see :attr:`is_crowded`."""
        self._store, self._settle, self._chores, self._with_pen = store, settle, chores, with_pen
        self._group_bytes = group_bytes
        self._pen_every_s = with_pen_every_s or float("inf")
        self._line: deque[Batch] = deque()
        self._pen = Pen.FREE
        self._thread_wants_pen = False
        self._pen_work_wanted = False
        self._kicked = False
        self._leaving = False
        self.waiting_bytes = 0
        self._thread = threading.Thread(target=self._run, name="leaderq-journal", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def write(self, batch: Batch) -> bool:
        """Under the gate: take the pen for this batch of one's own; ``False`` if it must join the line.

        The main thread never gets it: there a signal (Ctrl-C) can raise anywhere, also between a write and what has to
        follow it.
        """
        if self._pen is not Pen.FREE or self._thread_wants_pen or threading.get_ident() == threading.main_thread().ident:
            return False
        self._pen = Pen.CALLER
        self.waiting_bytes += batch.size
        return True

    def written(self, batch: Batch) -> None:
        """Outside of the gate, after :meth:`write` gave ``True``: write it, and put the pen down."""
        try:
            self._store(batch)
        finally:
            with self._gate:
                self._close_up(batch)
                self._put_down()

    def line_up(self, batch: Batch) -> None:
        """Under the gate: have a batch written after those that wait."""
        self._line.append(batch)
        self.waiting_bytes += batch.size
        if self._pen is Pen.FREE:
            # One step, for it may be the main thread: what a signal prevents now the thread sees when it wakes.
            self._pen = Pen.THREAD
            self._work.notify()

    def join(self, payload: bytes, size: int, expires_us: int | None) -> tuple[Batch, int]:
        """Under the gate: have a record written with the batch that waits, or a new one; gives that, and its position."""
        batch = self._line[-1] if self._line else None
        if batch is None or batch.sync or batch.size + size > self._group_bytes:
            batch = Batch()
            batch.size = HEADER_BYTES  # it may have to begin a segment
            self.line_up(batch)
        payloads = batch.payloads
        position = len(payloads)
        payloads.append(payload)
        if expires_us is not None:
            batch.expiries[position] = expires_us
        batch.size += size
        self.waiting_bytes += size
        return batch, position

    @property
    def is_crowded(self) -> bool:
        """Whether so much waits that the next has to wait."""
        return self.waiting_bytes > WAITING_BYTES

    def await_room(self, room: Signal, timeout_s: float) -> float:
        """Outside of the gate, after joining :attr:`room`: wait until less is to be written; gives the seconds left, with
        which the gate is to be taken and looked again."""
        give_up_s = time.monotonic() + timeout_s
        if room.wait(timeout_s):
            return max(0.0, give_up_s - time.monotonic())
        with self._gate:
            self.room.leave(room)
        return 0.0

    @property
    def is_writer(self) -> bool:
        """Whether this is the writer's thread, which must not wait for itself."""
        return threading.current_thread() is self._thread

    def kick(self) -> None:
        """Under the gate: have the chores done soon."""
        if not self._kicked:
            self._kicked = True
            self._work.notify()

    def want_pen_work(self) -> None:
        """Under the gate: have ``with_pen`` called soon."""
        self._pen_work_wanted = True
        self._work.notify()

    def leave(self, timeout_s: float) -> bool:
        """Write what waits, and end the thread; ``False`` if that took longer."""
        with self._gate:
            self._leaving = True
            self._work.notify()
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _close_up(self, batch: Batch) -> None:
        self.waiting_bytes = self.waiting_bytes - batch.size if self._line else 0
        self._settle(batch)
        batch.finish()
        if not self.is_crowded:
            self.room.wake()

    def _put_down(self) -> None:
        if self._line or self._thread_wants_pen:
            self._pen = Pen.THREAD
            self._work.notify()
        else:
            self._pen = Pen.FREE

    def _run(self) -> None:
        pen_at = time.monotonic() + self._pen_every_s
        chores_at = time.monotonic() + CHORES_EVERY_S
        while self._await_something(min(chores_at, pen_at)):
            self._write_line(min(chores_at, pen_at))
            now = time.monotonic()
            if now >= pen_at or self._pen_work_wanted:
                self._work_with_pen()
                pen_at = time.monotonic() + self._pen_every_s
            if now >= chores_at or self._kicked:
                self._kicked = False
                with contained("a chore"):
                    self._chores()
                chores_at = time.monotonic() + CHORES_EVERY_S

    def _await_something(self, until: float) -> bool:
        with self._gate:
            while not (self._pen is Pen.THREAD or self._kicked or self._pen_work_wanted):
                if self._leaving and self._pen is Pen.FREE and not self._line:
                    return False
                left_s = until - time.monotonic()
                if left_s <= 0:
                    break
                self._work.wait(min(left_s, 0.05) if self._leaving else left_s)
            if self._line and self._pen is Pen.FREE:  # a signal raised before the pen was handed over
                self._pen = Pen.THREAD
            return True

    def _write_line(self, until: float) -> None:
        """With the pen, if the thread has it: write what waits and put it down; keep it if something else comes first."""
        while self._pen is Pen.THREAD:
            with self._gate:
                if not self._line:
                    self._thread_wants_pen = False
                    self._pen = Pen.FREE
                    return
                batch = self._line.popleft()
            try:
                self._store(batch)
            finally:
                with self._gate:
                    self._close_up(batch)
            batch.tell()
            if self._kicked or self._pen_work_wanted or time.monotonic() >= until:
                return

    def _work_with_pen(self) -> None:
        with self._gate:
            self._pen_work_wanted = False
            self._thread_wants_pen = True
            while self._pen is Pen.CALLER:
                self._work.wait(1.0)
            self._pen = Pen.THREAD
        with contained("what is to be done while nobody writes"):
            self._with_pen()
        self._write_line(0)


def outcome(batch: Batch, signal: Signal | None, give_up_s: float) -> int:
    """Wait for a batch; gives its first id.

    :raises JournalSlow: it is not written yet; it may still be.
    """
    if signal is not None and not signal.wait(max(0.0, give_up_s - time.monotonic())):
        raise JournalSlow("the journal's disk did not take the record in time; it may be stored later, or not")
    if batch.error is not None:
        raise batch.error
    return batch.first_id
