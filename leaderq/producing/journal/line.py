"""The line of a journal: records that were accepted, in the order of their ids, written to segments
in groups, and synced as the policy says.

A record has its id as soon as it joins the line, under the journal's gate. One thread writes the
head of the line; what arrives meanwhile is written together by the next write. The head never
fails. If the disk refuses it, it stays where it is, and is tried again: half as many records at
once, until a single record is refused. Then the journal *takes nothing*: nobody may join while
records are in the line, everybody who waits is told, one log line is written, and the head is tried
four times a second. Records that are acknowledged meanwhile need not be written. So ids are dense,
and records are stored in the order in which they were accepted.

An interrupt of the thread, between any two steps, changes nothing: a single value, the extent of
the segment, says which records are stored, so a write that was under way is done again.

On each failure of the disk:

* a write fails (no space, an error, a short write that cannot be continued): the file is cut
  back to its last whole record;
* a sync fails, or cutting back does: the file is cut off and never written or synced again, because
  a second sync may succeed although the first one lost the data; the next write begins a new file.
  Records accepted before under a laxer policy and not yet synced stay readable and are counted as
  ``exposed``; the next ``flush`` raises.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from leaderq.base import clock
from leaderq.base.arguments import require_finished
from leaderq.base.timeouts import Seldom
from leaderq.errors import JournalFailed, JournalFull, JournalSlow, LeaderqError, told, with_cause
from leaderq.producing.journal.disk import NO_SPACE, force, write_all
from leaderq.producing.journal.index import SegmentIndex
from leaderq.producing.journal.policy import Every, Interval, NoSync, Policy
from leaderq.producing.journal.records import Entry, encode, microseconds, size_of
from leaderq.producing.journal.recovery import LEAP
from leaderq.producing.journal.segments import (
    HEADER_BYTES,
    Segment,
    SegmentHeader,
    segment_name,
)
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


class Committer:
    """The line, and the thread that writes its head. See the module. Between two batches the thread
    does ``chores`` every half second and when kicked, and forces out what is stored as the policy
    says. It calls ``on_room`` when the disk takes records again, or chores have deleted segments.

    The line is used under the gate, the disk without; if :meth:`write` raises, it has stored
    nothing.
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
        self.index, self._disk, self._counters = index, index.disk, index.counters
        self._is_lazy = isinstance(policy, NoSync)
        self._sync_after = policy.items if isinstance(policy, Every) else math.inf
        self._segment_bytes, self._allot_bytes = segment_bytes, allot_bytes
        self.codec = 0
        """The tag of the codec of whatever is written from now on."""
        self.segment: Segment | None = None
        """The one that is written to, in the file of this descriptor."""
        self._fd = -1
        self._is_sound = False  # whether this file may still be used
        self._allotted = 0  # up to where the file has bytes: zeros behind its last record
        self._unsynced = 0
        self._unforced: list[Path] = []  # former segments that nobody has synced
        self._failure: OSError | None = None
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
        self._sync_at = clock.awake_s() + self._sync_every_s
        self._chores_at = clock.awake_s() + CHORES_EVERY_S
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
        is_ending, now = service.is_stopping, clock.awake_s()
        due_at = min(self._chores_at, self._sync_at)
        if self.batches:
            due_at = min(due_at, self._again_at)
        if due_at > now and not is_ending:
            service.wait(due_at - now)
            now = clock.awake_s()
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
        self._again_at = clock.awake_s() + AGAIN_S
        with self.index.gate:
            self.trouble = self._trouble_of(error)
            self.room.notify_all()
        self._chores_at = 0.0  # the segment in use may be done with

    def _trouble_of(self, error: Exception) -> LeaderqError:
        """Return the error for all later callers, while the disk takes nothing because of
        ``error``.
        """
        what = f"journal {str(self.index.directory)!r}"
        if isinstance(error, OSError) and error.errno in NO_SPACE:
            full = JournalFull(f"no space is left for {what}; nothing was stored")
            return with_cause(full, error)
        failed = f"{what} could not be written: {told(error)}; nothing was stored"
        return with_cause(JournalFailed(failed), error)

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

    # -- records -----------------------------------------------------------------------------------

    def write(self, first_id: int, entries: list[Entry], size: int) -> None:
        """Write records of at most ``size`` bytes together, and sync them if the policy says so."""
        count, segment = len(entries), self.segment
        if segment is None or not self._may_take(segment, first_id, size):
            segment = self.roll()
        self._promise_ids(count)
        now_us = microseconds(clock.calendar_s())
        data = encode(entries, first_id=first_id, appended_us=now_us, salt=segment.salt)
        records, begin = segment.extent
        end = begin + len(data)
        is_small = len(data) < self._allot_bytes >> 4
        if end > self._allotted and is_small and begin > self._allot_bytes >> 6:
            self._allot(begin)  # many small records came: it pays
        unsynced = self._unsynced + count
        try:
            write_all(self._disk, self._fd, data, begin)
            if unsynced >= self._sync_after:
                self._sync()
                unsynced = 0
        except OSError:
            self._counters.failed_writes += 1
            self._cut(begin)
            raise
        self._unsynced, self._allotted = unsynced, max(self._allotted, end)
        segment.extent = (records + count, end)  # stored, by this statement
        self._counters.appended += count
        self._counters.batches += 1

    def _may_take(self, segment: Segment, first_id: int, size: int) -> bool:
        """Whether these records may go to this segment. An empty one takes any size."""
        records, begin = segment.extent
        fits = begin + size <= self._segment_bytes or not records
        is_next = segment.first_id + records == first_id and segment.codec == self.codec
        return self._is_sound and fits and is_next

    def _allot(self, end: int) -> None:
        """Fill the space after ``end`` with zeros. A sync is twice as fast if bytes were
        overwritten, because the file's size has not changed. Zeros are not a record.

        If there is no room for zeros, records are written without them. The zeros are forced out
        with the next record.
        """
        try:
            write_all(self._disk, self._fd, bytes(self._allot_bytes), end)
        except OSError:
            self._allot_bytes = 0
            self._cut(end)
            return
        self._allotted = end + self._allot_bytes

    def _cut(self, end: int) -> None:
        """Remove everything that was written after ``end``."""
        self._allotted = end
        try:
            self._disk.truncate(self._fd, end)
        except OSError:
            self._is_sound = False

    def _promise_ids(self, count: int) -> None:
        """Save up to which id records may be written. This is needed before ids are told whose
        records a crash of the host may lose.
        """
        index = self.index
        if self._sync_after == 1 or index.next_id + count <= index.reserved:
            return
        with index.gate:
            index.reserved = index.next_id + count + LEAP
        index.save()

    # -- syncs -------------------------------------------------------------------------------------

    def _sync(self) -> None:
        """Force out the written records. If this raises, nobody knows what is on the disk, and the
        file is not used any more.
        """
        try:
            self._disk.sync(self._fd)
        except OSError as error:
            self._is_sound = False
            self._counters.failed_syncs += 1
            self._counters.exposed += self._unsynced
            if self._unsynced:
                self._failure = error
            self._unsynced = 0
            log.error(  # noqa: TRY400 - the error says all
                "journal file not synced, the next record begins a new one folder=%s error=%s",
                self.index.directory,
                error,
            )
            raise
        self._unsynced = 0
        self._counters.fsyncs += 1

    def sync(self) -> None:
        """Force out the records that wait for it. A failure is raised by the next ``flush``."""
        if self._unsynced:
            with suppress(OSError):  # logged, counted, and kept for the next flush
                self._sync()

    def flush(self) -> None:
        """Force out all stored records.

        :raises JournalFailed: this failed, or a sync since the last flush did.
        """
        while self._unforced:
            try:
                force(self._disk, self._unforced[-1])
            except FileNotFoundError:
                pass  # all of it was acknowledged
            except OSError as error:
                self._counters.failed_syncs += 1
                self._failure = error
            self._unforced.pop()
        self.sync()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise JournalFailed(
                f"a sync of journal {str(self.index.directory)!r} failed after records had been "
                f"accepted: {failure}; they can be read, but may not outlast a power cut"
            ) from failure

    # -- segments ----------------------------------------------------------------------------------

    def roll(self) -> Segment:
        """Begin a new segment; if that raises, the old one stays in use. What is not yet on the
        disk of the old one is synced first; with ``NO_SYNC`` the next flush does that.
        """
        old = self.segment
        if not self._is_lazy:
            self.sync()
        elif self._unsynced and old is not None:
            self._unforced.append(old.path)
            self._unsynced = 0
        index = self.index
        if old is not None and not old.records:
            index.replace(old, None)  # it makes way for one of the same name
            self.close()
            self._disk.remove(old.path)
        first_id, last, previous = index.next_id, index.segments[-1:], (0, 0, 0)
        if last:
            previous = last[0].first_id, *last[0].extent
        created_us = microseconds(clock.calendar_s())
        header = SegmentHeader(first_id, *previous, created_us, codec=self.codec)
        path = index.directory / segment_name(first_id, index.stamp)
        segment = Segment(path, first_id, index.stamp, header, HEADER_BYTES)
        fd = self._created(path, header.encode())
        self.close()
        self._fd, self._allotted = fd, HEADER_BYTES
        self.segment, self._is_sound = segment, True
        index.replace(None, segment)
        return segment

    def _created(self, path: Path, header: bytes) -> int:
        """Create a segment's file with its header, and force its name to the disk. Returns the
        file's descriptor.
        """
        try:
            fd = self._disk.create(path)
        except FileExistsError:
            # Left by a former try whose removal failed too. No id from it was ever told, or the
            # next would not be its first.
            self._disk.remove(path)
            fd = self._disk.create(path)
        try:
            write_all(self._disk, fd, header, 0)  # forced out with the first record
            self._disk.sync_directory(self.index.directory)
        except OSError:
            self._disk.close(fd)
            with suppress(OSError):  # the next try finds it, and begins by removing it
                self._disk.remove(path)
            raise
        return fd

    def close(self) -> None:
        """Write no more to the segment in use; the next write begins another."""
        if self._fd >= 0:
            if self._is_sound and self.segment is not None and self._allotted > self.segment.size:
                self._cut(self.segment.size)
            fd, self._fd = self._fd, -1
            self._disk.close(fd)
        if self.segment is not None:
            self.segment.sealed = True
        self._is_sound, self.segment, self._unsynced = False, None, 0
