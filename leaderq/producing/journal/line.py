"""The line of a journal: records that were accepted, in the order of their ids, written in groups.

A record has its id as soon as it joins the line, under the journal's gate. One thread writes the
head of the line; what arrives meanwhile is written together by the next write. The head never
fails. If the disk refuses it, it stays where it is, and is tried again: half as many records at
once, until a single record is refused. Then the journal *takes nothing*: nobody may join while
records are in the line, everybody who waits is told, one log line is written, and the head is tried
four times a second. Records that are acknowledged meanwhile need not be written. So ids are dense,
and records are stored in the order in which they were accepted.

An interrupt of the thread, between any two steps, changes nothing: a single value, the extent of
the segment, says which records are stored, so a write that was under way is done again.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from leaderq.base import clock as clocks
from leaderq.base.arguments import require_finished
from leaderq.base.timeouts import Seldom
from leaderq.errors import JournalSlow, LeaderqError, told, with_cause
from leaderq.producing.journal.index import SegmentIndex
from leaderq.producing.journal.policy import Interval, Policy
from leaderq.producing.journal.records import Entry, size_of
from leaderq.producing.journal.segments import HEADER_BYTES
from leaderq.producing.journal.store import RecordStore
from leaderq.threads import Service, primitives

log = logging.getLogger("leaderq.producing.journal")

GROUP_BYTES: Final = 1 << 20
"""A batch that others join gets no larger than this, or than a segment."""
WAITING_BYTES: Final = 16 << 20
"""Callers that would make more wait for the disk wait until there is room."""
CHORES_EVERY_S: Final = 0.5
AGAIN_S: Final = 0.25
_WHOLE: Final = 1 << 62

OnDurable = Callable[["int | None", "Exception | None"], object]
"""Called with the id of a record once it is as durable as the policy says, or at the close with
``None`` and the error for which it is not stored."""
Action = Callable[[], object]


@dataclass(slots=True, eq=False)
class CommitBatch:
    """Records that are written together. The index knows which of them are stored."""

    first_id: int
    entries: list[Entry]
    size: int
    """Bytes it takes at most: it may have to begin a segment."""
    is_taken: bool = False
    """Whether it is being written, so that nobody may join it."""

    @property
    def end_id(self) -> int:
        return self.first_id + len(self.entries)


@dataclass(slots=True, eq=False)
class LineWaiter:
    """Somebody who waits until all records before ``end_id`` are stored and, with ``is_flush``,
    forced out.
    """

    end_id: int
    is_flush: bool
    wake: Callable[[], object]
    is_done: bool = False
    error: LeaderqError | None = None

    def tell(self, error: LeaderqError | None) -> None:
        self.error, self.is_done = error, True
        self.wake()

    def require_done(self) -> None:
        if not self.is_done:
            raise JournalSlow(
                "the journal's disk did not take the record in time; it may be stored later, or not"
            )
        if self.error is not None:
            raise self.error


class Committer(RecordStore):
    """The line, and the thread that writes its head. See the module. Between two batches the thread
    does ``chores`` every half second and when kicked, and forces out what is stored as the policy
    says. It calls ``on_room`` when the disk takes records again, or chores have
    deleted segments.

    Called under the gate, except :meth:`end`.
    """

    def __init__(
        self,
        index: SegmentIndex,
        policy: Policy,
        *,
        segment_bytes: int,
        allot_bytes: int,
        chores: Action,
        on_room: Action,
    ) -> None:
        super().__init__(index, policy, segment_bytes=segment_bytes, allot_bytes=allot_bytes)
        self.room = primitives.Condition(index.gate)
        """Notified when fewer bytes wait, see :attr:`is_crowded`, or the disk takes nothing."""
        self.waiting_bytes = 0
        self.trouble: LeaderqError | None = None
        """Why the disk refuses the head of the line at present."""
        self.done: set[int] = set()
        """Records that were acknowledged before they were written."""
        self.batches: deque[CommitBatch] = deque()
        self._group_bytes = min(GROUP_BYTES, segment_bytes)
        self.callbacks: deque[tuple[int, OnDurable]] = deque()
        """Whom to call for which stored record, in the order of the ids."""
        self._waiters: list[LineWaiter] = []
        self._most = _WHOLE
        self._chores, self._on_room = chores, on_room
        self._sync_every_s = policy.seconds if isinstance(policy, Interval) else math.inf
        self._sync_at = clocks.awake_s() + self._sync_every_s
        self._chores_at = clocks.awake_s() + CHORES_EVERY_S
        self._again_at, self._seldom = 0.0, Seldom()
        self._is_said = False
        self._end: LeaderqError | None = None  # why nothing more is stored
        # Struck, it finds the line as it was.
        self.service = Service.lasting("leaderq-journal", self._round, on_struck=lambda: None)

    @property
    def next_id(self) -> int:
        """The id that the next record gets. May be asked without the gate: what leaves the line is
        in the index before.
        """
        try:
            return self.batches[-1].end_id
        except IndexError:
            return self.index.next_id

    def join(self, entries: list[Entry], size: int) -> int:
        """Add records at the end of the line, to be written together; return the first id. A single
        statement accepts them.
        """
        batch = self.batches[-1] if self.batches else None
        if batch is None or batch.is_taken or batch.size + size > self._group_bytes:
            first_id = self.index.next_id if batch is None else batch.end_id
            size += HEADER_BYTES
            self.waiting_bytes += size  # too high after an interrupt, until the line is empty
            self.batches.append(CommitBatch(first_id, entries, size))
            self.service.wake()
            return first_id
        self.waiting_bytes += size
        batch.size += size
        first_id = batch.first_id + len(batch.entries)
        batch.entries += entries
        return first_id

    def wait_stored(
        self, end_id: int, wake: Callable[[], object], *, is_flush: bool = False
    ) -> LineWaiter:
        waiter = LineWaiter(end_id, is_flush, wake)
        is_stored = end_id <= self.index.next_id
        if self._end is not None or (is_stored and not is_flush):
            waiter.tell(None if is_stored else self._end)
            return waiter
        self._waiters.append(waiter)
        if is_flush:  # the thread was woken for a record when that joined
            self.service.wake()
        return waiter

    @property
    def is_crowded(self) -> bool:
        return self.waiting_bytes > WAITING_BYTES

    def kick(self) -> None:
        """There are chores."""
        if self._chores_at:
            self._chores_at = 0.0
            self.service.wake()

    def end(self, error: LeaderqError) -> int:
        """Tell everybody who waits that the rest is not stored; return how many records that is."""
        self._tell()
        with self.index.gate:
            self._end = error
            for waiter in self._waiters:
                waiter.tell(error)
        left = self.next_id - self.index.next_id - len(self.done)
        while self.callbacks:
            self._call(error)
        return left

    def _round(self, service: Service) -> bool:
        """Wait until something is due, and do it; return whether to go on."""
        is_ending, now = service.is_stopping, clocks.awake_s()
        due_at = min(self._chores_at, self._sync_at)
        if self.batches:
            due_at = min(due_at, self._again_at)
        if due_at > now and not is_ending:
            service.wait(due_at - now)
            now = clocks.awake_s()
        if self.batches and (is_ending or now >= self._again_at):
            self._write_head()
            is_ending = is_ending and self.trouble is not None
        self._tell()
        if not is_ending:
            self._do_due(now)
        return not is_ending

    def _do_due(self, now: float) -> None:
        if now >= self._sync_at:
            self._sync_at = now + self._sync_every_s
            self.sync()
        if now < self._chores_at:
            return
        self._chores_at = now + CHORES_EVERY_S
        before = self.index.bytes_used
        try:
            self._chores()
        except Exception as exc:
            if self._seldom.is_time():  # on a full disk it fails each time
                is_ours = not isinstance(exc, OSError)
                log.error(  # noqa: TRY400
                    "journal chores failed, tried again error=%s",
                    exc,
                    exc_info=exc if is_ours else None,
                )
        if self.index.bytes_used < before:
            self._again_at = 0.0
            self._on_room()

    def _write_head(self) -> None:
        with self.index.gate:
            if (head := self._head()) is None:
                return
            head.is_taken = True
            skip = max(0, self.index.next_id - head.first_id)
            entries = head.entries
            if skip or len(entries) > self._most:
                entries = entries[skip : skip + self._most]
        is_whole = entries is head.entries
        size = head.size if is_whole else HEADER_BYTES + size_of(entries)
        try:
            self.write(head.first_id + skip, entries, size)
        except Exception as error:  # noqa: BLE001 - any failure: the head stays, and this goes on
            self._refused(error, len(entries))
        else:
            self._stored()

    def _head(self) -> CommitBatch | None:
        """Return the first batch of which something is still to be written. Called under
        the gate.
        """
        index = self.index
        if self.trouble is not None:  # what is done with need not be written
            end = index.next_id
            while end in self.done:
                end += 1
            index.floor = max(index.floor, end)
        next_id = index.next_id
        while self.batches and self.batches[0].end_id <= next_id:
            size = self.batches.popleft().size
            self.waiting_bytes = max(0, self.waiting_bytes - size) if self.batches else 0
        if not self.batches:
            self.trouble = None
            return None
        return self.batches[0]

    def _stored(self) -> None:
        with self.index.gate:
            self._most = min(self._most * 2, _WHOLE)
            self.trouble, self._again_at = None, 0.0
            self._head()
            self.room.notify_all()
        if self._is_said:
            self._is_said = False
            log.info("journal takes records again folder=%s", self.index.directory)
            self._on_room()

    def _refused(self, error: Exception, count: int) -> None:
        if count > 1:  # perhaps a part fits
            self._most = count // 2
            return
        if not self._is_said:
            self._is_said = True
            log.error(
                "journal takes nothing, what it has accepted is kept and tried again folder=%s "
                "error=%s",
                self.index.directory,
                told(error),
                exc_info=None if isinstance(error, OSError) else error,
            )
        self._again_at = clocks.awake_s() + AGAIN_S
        with self.index.gate:
            self.trouble = self._trouble_of(error)
            self.room.notify_all()
        self._chores_at = 0.0  # the segment in use may be done with

    def _tell(self) -> None:
        """Tell those who wait for stored records. Called without the gate, because callbacks may
        call the journal.
        """
        stored = self.index.next_id
        if self.done:
            with self.index.gate:
                written = {one for one in self.done if one < stored}
                self.index.mark(written)
                self.done -= written
        while self.callbacks and self.callbacks[0][0] < stored:
            self._call(None)
        for waiter in list(self._waiters):
            error: LeaderqError | None = None
            if waiter.end_id <= stored:
                try:
                    if waiter.is_flush:
                        self.flush()
                except LeaderqError as exc:
                    error = exc
            elif (trouble := self.trouble) is not None:
                slow = JournalSlow(
                    "the record was accepted, and is stored as soon as the disk takes it: do not "
                    f"append it again. At present: {trouble}"
                )
                error = with_cause(slow, trouble)
            else:
                continue
            waiter.tell(error)
            self._waiters.remove(waiter)

    def _call(self, error: LeaderqError | None) -> None:
        """Call the first callback. Whatever it raises, it was called."""
        record_id, callback = self.callbacks[0]
        try:
            require_finished(callback(record_id if error is None else None, error), "on_durable")
        except (Exception, SystemExit):
            log.exception("callback for a stored record failed")
        finally:
            self.callbacks.popleft()
