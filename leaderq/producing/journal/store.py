"""Writes batches to segments, and syncs them as the policy says. Used by who holds the pen only.

What a failure does:

* a write fails (no space, an error, a short write that cannot be gone on with): the file is cut back to its last whole
  record, the batch is refused, the next one is tried afresh;
* a sync fails: the batch is cut off and refused; the file is never written or synced again, for a second sync may succeed
  although the first one lost the data; the next batch begins a new file. Records accepted before under a laxer policy and
  not yet synced stay readable and are counted as ``exposed``; the next ``flush`` raises;
* a new file cannot be made: the batch is refused.
"""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from leaderq.errors import JournalFailed, JournalFull, LeaderqError
from leaderq.producing.journal.batch import Batch, log
from leaderq.producing.journal.counters import Counters
from leaderq.producing.journal.disk import Disk
from leaderq.producing.journal.keeper import Keeper
from leaderq.producing.journal.policy import EVERY_ITEM, Every, NoSync, Policy
from leaderq.producing.journal.record import encode
from leaderq.producing.journal.recovery import LEAP
from leaderq.producing.journal.segment import Segment
from leaderq.producing.journal.segment_header import SegmentHeader
from leaderq.producing.journal.shelf import Shelf
from leaderq.producing.journal.tape import Tape

LAST_ID: Final = (1 << 64) - 1
_NO_SPACE: Final = frozenset({errno.ENOSPC, errno.EDQUOT})


class Store:
    """Stores batches, and raises nothing: what became of one is in it."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        gate: threading.Lock,
        shelf: Shelf,
        keeper: Keeper,
        counters: Counters,
        *,
        policy: Policy,
        segment_bytes: int,
        reserve_bytes: int,
        clock: Callable[[], float],
        next_id: int,
        previous: tuple[int, int, int],
        stamp: int,
        allot_bytes: int,
    ) -> None:
        self._disk, self._directory, self._gate = disk, directory, gate
        self._shelf, self._keeper, self._counters = shelf, keeper, counters
        self._policy, self._segment_bytes, self._reserve_bytes = policy, segment_bytes, reserve_bytes
        self._clock = clock
        self._tape = Tape(disk, directory, stamp, allot_bytes=allot_bytes)
        self.next_id = next_id
        self._previous = previous
        self._unsynced = 0
        self._failure: OSError | None = None

    def store(self, batch: Batch) -> None:
        """Store a batch: sets its ``first_id``, or its ``error``."""
        try:
            if batch.payloads:
                self._write(batch)
            if batch.sync:
                self._flush()
        except LeaderqError as error:
            batch.error = error
        except OSError as error:
            batch.error = self._refusal(error)
        except Exception as error:  # noqa: BLE001  (a fault of ours must reach the caller, not end the writer's thread)
            log.exception("journal: a batch could not be stored")
            batch.error = JournalFailed(f"the journal failed: {type(error).__name__}: {error}")
            batch.error.__cause__ = error

    def settle(self, batch: Batch) -> None:
        """Under the gate: what was stored may be read from now on."""
        if batch.error is None and batch.payloads and self._tape.segment is not None:
            segment = self._tape.segment
            self._shelf.grow(segment, records=len(batch.payloads), size=self._tape.end - segment.size)

    def _refusal(self, error: OSError) -> LeaderqError:
        if error.errno in _NO_SPACE:
            self._counters.refused_full += 1
            made: LeaderqError = JournalFull(f"no space is left for journal {str(self._directory)!r}; nothing was stored")
        else:
            made = JournalFailed(f"journal {str(self._directory)!r} could not be written: {error}; nothing was stored")
        made.__cause__ = error
        return made

    def _write(self, batch: Batch) -> None:
        count = len(batch.payloads)
        if self.next_id + count > LAST_ID:
            raise JournalFull(f"the journal has given out its last id ({LAST_ID}); use a new directory")
        if not self._tape.fits(batch.size, self._segment_bytes):
            self.roll()
        self._keep_reserve(batch.size)
        self._promise_ids(count)
        segment = self._tape.segment
        assert segment is not None  # roll has begun one, or raised
        now_us = int(self._clock() * 1e6)
        data = encode(batch.payloads, first_id=self.next_id, appended_us=now_us, salt=segment.salt, expiries=batch.expiries)
        begin = self._tape.end
        try:
            self._tape.write(data)
        except OSError:
            self._counters.failed_writes += 1
            raise
        self._sync_if_due(count, begin)
        batch.first_id = self.next_id
        self.next_id += count
        self._count(count)

    def _count(self, count: int) -> None:
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
            self._tape.cut(begin)
            raise

    def _sync(self) -> None:
        began = time.perf_counter()
        try:
            self._tape.sync()
        except OSError as error:
            self._counters.failed_syncs += 1
            self._counters.exposed += self._unsynced
            if self._unsynced:
                self._failure = error
            self._unsynced = 0
            log.error("journal: %s could not be synced (%s); the next record begins a new file", self._directory, error)
            raise
        took_s = time.perf_counter() - began
        self._unsynced = 0
        counters = self._counters
        counters.fsyncs += 1
        counters.fsync_s += took_s
        counters.fsyncs_by_log2_us[min(int(took_s * 1e6).bit_length(), 39)] += 1
        counters.slowest_fsync_s = max(counters.slowest_fsync_s, took_s)

    def sync(self) -> None:
        """Force out what waits for it, if anything does. A failure is told by the next ``flush``."""
        if self._unsynced:
            try:
                self._sync()
            except OSError:
                return  # logged, counted, and kept for the next flush

    def _flush(self) -> None:
        if self._unsynced:
            self._sync()
        failure, self._failure = self._failure, None
        if failure is not None:
            raise JournalFailed(
                f"a sync of journal {str(self._directory)!r} failed after records had been accepted: {failure}; "
                "they can be read, but may not outlast a power cut"
            ) from failure

    def _keep_reserve(self, size: int) -> None:
        if self._reserve_bytes and (free := self._disk.free_bytes(self._directory)) < self._reserve_bytes + size:
            self._counters.refused_full += 1
            raise JournalFull(f"{free} bytes are free on the disk, of which {self._reserve_bytes} are not for the journal")

    def _promise_ids(self, count: int) -> None:
        """Before ids are told that may be lost with their records in a crash of the host: note how far they may go."""
        if self._policy == EVERY_ITEM or self.next_id + count <= self._keeper.reserved:
            return
        with self._gate:
            self._keeper.reserved = self.next_id + count + LEAP
        self._keeper.save()

    def roll(self) -> None:
        """Go on with a new segment. What waits for a sync in the old one is forced out first, but for ``NO_SYNC``.

        :raises OSError: it could not be made; the old one goes on if it is sound.
        """
        if not isinstance(self._policy, NoSync):
            self.sync()
        old = self._tape.segment
        if old is not None and old.records:
            self._previous = (old.first_id, old.records, old.size)
        elif old is not None:
            with self._gate:
                self._shelf.remove(old)  # a file of no record gives way to one of the same name
            self._tape.close()
            self._disk.remove(old.path)
        segment = self._tape.begin(SegmentHeader(self.next_id, *self._previous, int(self._clock() * 1e6)))
        with self._gate:
            if old is not None:
                old.sealed = True
            self._shelf.add(segment)

    def begin(self, keeper: Keeper) -> None:
        """What follows opening: what is done with goes, the cursor is saved, there is a segment to write to.

        :raises OSError: it cannot be, for another reason than a full disk: that must not keep anybody from reading.
        """
        for step in (keeper.tidy, self.roll):
            try:
                step()
            except OSError as error:
                if error.errno not in _NO_SPACE:
                    raise
                log.warning("journal: no space is left for %s; what is in it can be read", self._directory)

    @property
    def current(self) -> Segment | None:
        """The segment that is being written."""
        return self._tape.segment

    def close(self) -> None:
        """Close the file."""
        self._tape.close()
