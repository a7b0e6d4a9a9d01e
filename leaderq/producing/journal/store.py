"""Group commit: what arrives while a write is under way is written together by the next.

Callers join the last batch in the line under the journal's gate; one thread writes the batches in
that order, and syncs them as the policy says. A batch is stored as a whole or, as far as anybody is
told, not at all; the next one is tried whatever became of it. What a failure does:

* a write fails (no space, an error, a short write that cannot be continued): the file is cut
  back to its last whole record, the batch is refused;
* a sync fails, or cutting back does: the batch is cut off and refused; the file is never written or
  synced again, because a second sync may succeed although the first one lost the data; the next
  batch begins a new file. Records accepted before under a laxer policy and not yet synced stay
  readable and are counted as ``exposed``; the next ``flush`` raises;
* a new file cannot be made: the batch is refused.
"""

from __future__ import annotations

import errno
import logging
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from leaderq import clock as clocks
from leaderq.arguments import require_finished
from leaderq.errors import JournalFailed, JournalFull, LeaderqError, told, with_cause
from leaderq.producing.journal.cursor import CursorWriter
from leaderq.producing.journal.disk import Disk, force, write_all
from leaderq.producing.journal.policy import EVERY_ITEM, Every, NoSync, Policy
from leaderq.producing.journal.records import EXPIRY_BYTES, HEAD_BYTES, encode
from leaderq.producing.journal.recovery import LEAP
from leaderq.producing.journal.segments import HEADER_BYTES, JournalParts, Segment, SegmentHeader
from leaderq.threads import Service, Waker, primitives

log = logging.getLogger("leaderq.producing.journal")

GROUP_BYTES: Final = 1 << 20
"""A batch that others join gets no larger than this, or than a segment."""
WAITING_BYTES: Final = 16 << 20
"""Callers that would make more wait for the disk wait until there is room."""
CHORES_EVERY_S: Final = 0.5
LAST_ID: Final = (1 << 64) - 1
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
QUIET_S: Final = 10.0

Bytes = bytes | bytearray | memoryview
OnDurable = Callable[["int | None", "Exception | None"], object]
"""Called with the id of a record once it is as durable as the policy says, or with ``None`` and the
error for which it is not stored."""
Action = Callable[[], None]


@dataclass(slots=True, eq=False)
class CommitBatch:
    """Records that are written together, and the outcome: ``first_id``, or ``error``. Guarded by
    the journal's gate until the writer has taken it from the line.
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
                    returned = callback(None if error else number, error)
                    require_finished(returned, "on_durable")
                except BaseException:  # also SystemExit: the writer's thread must go on
                    log.exception("callback for a stored record failed")


class Committer:
    """The line of batches, and their thread. Called under ``gate``, except :meth:`leave`."""

    def __init__(self, gate: primitives.RLock, *, group_bytes: int = GROUP_BYTES) -> None:
        self._gate = gate
        self.room = primitives.Condition(gate)
        """Notified when fewer bytes wait, see :attr:`is_crowded`."""
        self.waiting_bytes = 0
        self._group_bytes = group_bytes
        self._line: deque[CommitBatch] = deque()
        self._kicked = False
        self._upkeep_wanted = False
        self._service: Service | None = None
        self._quiet_until_s: dict[str, float] = {}

    def start(
        self, store: BatchStore, *, chores: Action, upkeep: Action, upkeep_every_s: float
    ) -> None:
        """Start the thread. Between two batches it does ``chores`` every half second and when
        kicked, ``upkeep`` every so many seconds and when wanted."""

        def run(service: Service) -> None:
            upkeep_at = clocks.awake_s() + upkeep_every_s
            chores_at = clocks.awake_s() + CHORES_EVERY_S
            while True:
                with self._gate:
                    batch = self._line.popleft() if self._line else None
                if batch is not None:
                    self._write(batch, store)
                elif service.is_stopping:
                    return
                elif not (self._kicked or self._upkeep_wanted):
                    service.wait(min(chores_at, upkeep_at) - clocks.awake_s())
                if self._upkeep_wanted or clocks.awake_s() >= upkeep_at:
                    self._upkeep_wanted = False
                    self._contained("upkeep", upkeep)
                    upkeep_at = clocks.awake_s() + upkeep_every_s
                if self._kicked or clocks.awake_s() >= chores_at:
                    self._kicked = False
                    self._contained("chores", chores)
                    chores_at = clocks.awake_s() + CHORES_EVERY_S

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
        """Whether this is the writer's thread, which must not wait for itself."""
        return self._service is not None and self._service.is_current

    def kick(self) -> None:
        if not self._kicked:
            self._kicked = True
            self._wake()

    def want_upkeep(self) -> None:
        self._upkeep_wanted = True
        self._wake()

    def leave(self, timeout_s: float | None) -> bool:
        """Write waiting batches, and end the thread; return whether that was done in time."""
        return self._service is None or self._service.stop(timeout_s)

    def _wake(self) -> None:
        if self._service is not None:
            self._service.wake()

    def _write(self, batch: CommitBatch, store: BatchStore) -> None:
        try:
            store.store(batch)
        finally:
            with self._gate:
                self.waiting_bytes = self.waiting_bytes - batch.size if self._line else 0
                store.settle(batch)
                batch.is_done = True
                for waker in batch.waiting:
                    waker.wake()
                if not self.is_crowded:
                    self.room.notify_all()
        batch.tell()

    def _contained(self, what: str, work: Action) -> None:
        """Log an error, and go on: on a full disk a chore fails each time."""
        try:
            work()
        except Exception as exc:
            now, is_ours = clocks.awake_s(), not isinstance(exc, OSError)
            if now >= self._quiet_until_s.get(what, now):
                self._quiet_until_s[what] = now + QUIET_S
                log.error(  # noqa: TRY400
                    "journal step failed, tried again step=%s error=%s",
                    what,
                    exc,
                    exc_info=exc if is_ours else None,
                )


@dataclass
class Halt:
    """With ``is_wanted``, all behind a record that could not be stored are refused with its
    ``error`` until that is set to ``None``, so that none is stored before it."""

    is_wanted: bool = False
    error: LeaderqError | None = None


class BatchStore:
    """Stores batches, and raises nothing: a batch has its outcome. For the writer's thread."""

    def __init__(
        self,
        parts: JournalParts,
        cursor_writer: CursorWriter,
        *,
        policy: Policy,
        segment_bytes: int,
        reserve_bytes: int,
        clock: Callable[[], float],
        previous: tuple[int, int, int],
        stamp: int,
        allot_bytes: int,
    ) -> None:
        self._disk, self._directory, self._gate = parts.disk, parts.directory, parts.gate
        self._index, self._counters = parts.index, parts.counters
        self._cursor, self._policy, self._clock = cursor_writer, policy, clock
        self._segment_bytes, self._reserve_bytes = segment_bytes, reserve_bytes
        self._writer = SegmentWriter(parts.disk, parts.directory, stamp, allot_bytes=allot_bytes)
        self._previous = previous
        self._unsynced = 0
        self._unforced: list[Path] = []  # former segments that nobody has synced
        self._failure: OSError | None = None
        self.halt = Halt()

    def store(self, batch: CommitBatch) -> None:
        if batch.payloads and self.halt.error is not None:
            batch.error = self.halt.error
            return
        try:
            if batch.payloads:
                self._write(batch)
            if batch.sync:
                self._flush()
        except LeaderqError as error:
            batch.error = error
        except OSError as error:
            batch.error = self._refusal(error)
        except Exception as error:
            log.exception("journal batch not stored")
            batch.error = with_cause(JournalFailed(f"the journal failed: {told(error)}"), error)
        if batch.payloads and self.halt.is_wanted:
            self.halt.error = batch.error

    def settle(self, batch: CommitBatch) -> None:
        """Under the gate: stored records may be read from now on."""
        if batch.error is None and batch.payloads and self._writer.segment is not None:
            segment = self._writer.segment
            grown = self._writer.end - segment.size
            self._index.grow(segment, records=len(batch.payloads), size=grown)

    def _refusal(self, error: OSError) -> LeaderqError:
        what = f"journal {str(self._directory)!r}"
        if error.errno in _NO_SPACE:
            self._counters.refused_full += 1
            full = JournalFull(f"no space is left for {what}; nothing was stored")
            return with_cause(full, error)
        failed = f"{what} could not be written: {error}; nothing was stored"
        return with_cause(JournalFailed(failed), error)

    def _write(self, batch: CommitBatch) -> None:
        count = len(batch.payloads)
        if self._index.next_id + count > LAST_ID:
            raise JournalFull(
                f"the journal has given out its last id ({LAST_ID}); use a new directory"
            )
        if not self._writer.fits(batch.size, self._segment_bytes):
            self.roll()
        self._keep_reserve(batch.size)
        self._promise_ids(count)
        segment = self._writer.segment
        assert segment is not None  # roll has begun one, or raised
        data = encode(
            batch.payloads,
            first_id=self._index.next_id,
            appended_us=int(self._clock() * 1e6),
            salt=segment.salt,
            expiries=batch.expiries,
        )
        begin = self._writer.end
        try:
            self._writer.write(data)
        except OSError:
            self._counters.failed_writes += 1
            raise
        self._sync_if_due(count, begin)
        batch.first_id = self._index.next_id
        self._index.next_id += count
        counters = self._counters
        counters.appended += count
        counters.batches += 1
        counters.largest_batch = max(counters.largest_batch, count)

    def _sync_if_due(self, count: int, begin: int) -> None:
        if not isinstance(self._policy, Every) or self._unsynced + count < self._policy.items:
            self._unsynced += count
            return
        try:
            self._sync()
        except OSError:
            self._writer.cut(begin)
            raise

    def _sync(self) -> None:
        began = time.perf_counter()
        try:
            self._writer.sync()
        except OSError as error:
            self._counters.failed_syncs += 1
            self._counters.exposed += self._unsynced
            if self._unsynced:
                self._failure = error
            self._unsynced = 0
            log.error(  # noqa: TRY400 - the error says all
                "journal file not synced, the next record begins a new one folder=%s error=%s",
                self._directory,
                error,
            )
            raise
        took_s = time.perf_counter() - began
        self._unsynced = 0
        counters = self._counters
        counters.fsyncs += 1
        counters.fsync_s += took_s
        counters.fsyncs_by_log2_us[min(int(took_s * 1e6).bit_length(), 39)] += 1
        counters.slowest_fsync_s = max(counters.slowest_fsync_s, took_s)

    def sync(self) -> None:
        """Force out the records that wait for it. A failure is raised by the next ``flush``."""
        if self._unsynced:
            try:
                self._sync()
            except OSError:
                return  # logged, counted, and kept for the next flush

    def _flush(self) -> None:
        while self._unforced:
            try:
                force(self._disk, self._unforced.pop())
            except FileNotFoundError:
                pass  # all of it was acknowledged
            except OSError as error:
                self._counters.failed_syncs += 1
                self._failure = error
        self.sync()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise JournalFailed(
                f"a sync of journal {str(self._directory)!r} failed after records had been "
                f"accepted: {failure}; they can be read, but may not outlast a power cut"
            ) from failure

    def _keep_reserve(self, size: int) -> None:
        if not self._reserve_bytes:
            return
        free = self._disk.free_bytes(self._directory)
        if free < self._reserve_bytes + size:
            self._counters.refused_full += 1
            raise JournalFull(
                f"{free} bytes are free on the disk, of which {self._reserve_bytes} are not for "
                "the journal"
            )

    def _promise_ids(self, count: int) -> None:
        """Before ids are told that a crash of the host may lose with their records: note
        how far.
        """
        if self._policy == EVERY_ITEM or self._index.next_id + count <= self._index.reserved:
            return
        with self._gate:
            self._index.reserved = self._index.next_id + count + LEAP
        self._cursor.save()

    def roll(self) -> None:
        """Begin a new segment; if that raises, the old one stays in use. Records that wait for a
        sync in the old one are forced out first, or with ``NO_SYNC`` by the next flush.
        """
        old = self._writer.segment
        if not isinstance(self._policy, NoSync):
            self.sync()
        elif self._unsynced and old is not None:
            self._unforced.append(old.path)
            self._unsynced = 0
        if old is not None and old.records:
            self._previous = (old.first_id, old.records, old.size)
        elif old is not None:
            with self._gate:
                self._index.remove(old)  # a file without records makes way for one of the same name
            self._writer.close()
            self._disk.remove(old.path)
        segment = self._writer.begin(
            SegmentHeader(self._index.next_id, *self._previous, int(self._clock() * 1e6))
        )
        with self._gate:
            if old is not None:
                old.sealed = True
            self._index.add(segment)

    def begin(self) -> None:
        """The first steps after opening: finished segments are deleted, the cursor is saved, there
        is a segment to write to. A full disk must not keep anybody from reading.
        """
        for step in (self._cursor.tidy, self.roll):
            try:
                step()
            except OSError as error:
                if error.errno not in _NO_SPACE:
                    raise
                log.warning(
                    "no space left for the journal, what is in it can be read folder=%s",
                    self._directory,
                )

    @property
    def current(self) -> Segment | None:
        return self._writer.segment

    def close(self) -> None:
        self._writer.close()


class SegmentWriter:
    """Writes at the end of a file, and removes what a failed write has left."""

    def __init__(self, disk: Disk, directory: Path, stamp: int, *, allot_bytes: int = 0) -> None:
        self.segment: Segment | None = None
        self.end = 0
        """The offset behind the last record."""
        self._disk = disk
        self._directory = directory
        self._stamp = stamp
        self._allot_bytes = allot_bytes
        self._allotted = 0
        self._fd = -1
        self._is_sound = False

    def fits(self, size: int, limit: int) -> bool:
        """Whether so many more bytes may go to this file. An empty one takes anything."""
        return self._is_sound and (self.end + size <= limit or self.end <= HEADER_BYTES)

    def begin(self, header: SegmentHeader) -> Segment:
        """Begin a new file, which exists, name and all, when this returns."""
        segment = Segment(self._directory, header.first_id, self._stamp)
        fd = self._created(segment.path, header.encode())
        self.close()
        self._fd, self.segment, self.end, self._is_sound = fd, segment, HEADER_BYTES, True
        self._allotted = HEADER_BYTES
        return segment

    def _created(self, path: Path, header: bytes) -> int:
        try:
            fd = self._disk.create(path)
        except FileExistsError:
            # Left by a former try whose removal failed too. No id from it was ever told, or the
            # next would not be its first.
            self._disk.remove(path)
            fd = self._disk.create(path)
        try:
            write_all(self._disk, fd, header, 0)  # forced out with the first record
            self._disk.sync_directory(self._directory)
        except OSError:
            self._disk.close(fd)
            with suppress(OSError):  # the next try finds it, and begins by removing it
                self._disk.remove(path)
            raise
        return fd

    def write(self, data: bytes) -> None:
        """Write behind the last record. If that raises, the file ends where it ended before, or
        will not be used any more."""
        is_small = len(data) < self._allot_bytes >> 4
        if self.end + len(data) > self._allotted and is_small and self.end > self._allot_bytes >> 6:
            self._allot()  # many small records came: it pays
        try:
            write_all(self._disk, self._fd, data, self.end)
        except OSError:
            self.cut(self.end)
            raise
        self.end += len(data)
        self._allotted = max(self._allotted, self.end)

    def _allot(self) -> None:
        """Fill the space ahead with zeros: a sync of bytes written over need not write the file's
        new size as well, and is twice as fast. Zeros are not a record.

        Without room for them the records are written all the same. They are forced out with the
        next record.
        """
        try:
            write_all(self._disk, self._fd, bytes(self._allot_bytes), self.end)
        except OSError:
            self._allot_bytes = 0
            self.cut(self.end)
            return
        self._allotted = self.end + self._allot_bytes

    def cut(self, end: int) -> None:
        """Take back everything written behind ``end``."""
        self.end = self._allotted = end
        try:
            self._disk.truncate(self._fd, end)
        except OSError:
            self._is_sound = False

    def sync(self) -> None:
        """Force out the written records. If that raises, nobody knows what is on the disk, and the
        file will not be used any more.
        """
        try:
            self._disk.sync(self._fd)
        except OSError:
            self._is_sound = False
            raise

    def close(self) -> None:
        if self._fd >= 0:
            if self._is_sound and self._allotted > self.end:
                self.cut(self.end)
            self._disk.close(self._fd)
            self._fd = -1
        self._is_sound = False
        self.segment = None
