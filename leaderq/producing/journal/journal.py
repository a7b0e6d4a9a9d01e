"""A journal on disk: records that ``append`` has accepted survive a crash, in order, until they are
acknowledged.

The segment files are authoritative about what was appended, the cursor about what was acknowledged.
Everything else is recomputed from them when the journal is opened. ``docs/design/journal.md`` has
the layout, the states, and what happens on each failure.

States: open; closing (nothing is accepted, what waits is written); closed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from leaderq import chance
from leaderq import clock as clocks
from leaderq.arguments import require, timeout
from leaderq.errors import (
    JournalClosed,
    JournalFailed,
    JournalFull,
    JournalRecordTooLarge,
    JournalSlow,
    WouldDeadlock,
)
from leaderq.producing.journal.cursor import CursorWriter
from leaderq.producing.journal.disk import DirectoryLock, Disk, make_directories
from leaderq.producing.journal.policy import (
    EVERY_ITEM,
    SEGMENT_BYTES,
    Damage,
    Interval,
    JournalCounters,
    JournalPlace,
    Policy,
    allotment,
    fitting_segment_bytes,
)
from leaderq.producing.journal.reader import Acks, SegmentReader
from leaderq.producing.journal.records import EXPIRY_BYTES, HEAD_BYTES, JournalRecord, record_of
from leaderq.producing.journal.recovery import Recovered, recovered
from leaderq.producing.journal.segments import HEADER_BYTES, JournalParts
from leaderq.producing.journal.store import (
    GROUP_BYTES,
    WAITING_BYTES,
    BatchStore,
    Bytes,
    CommitBatch,
    Committer,
    OnDurable,
)
from leaderq.threads import Waker, primitives
from leaderq.timeouts import Deadline

WAIT_S: Final = 30.0


class Journal:
    """Records of any bytes, appended by any thread, read in order, acknowledged in any order.

    Opening it recovers whatever is in ``directory`` (made if it is not there); :attr:`report` tells
    what was found.

    ``sync``: when records are forced to the disk, see ``policy``. ``max_bytes``: what the segment
    files may take in all, files set aside not counted; ``reserve_bytes``: what must stay free on
    the file system. ``clock``: seconds of the epoch.

    *Guarantees:* what :meth:`append` returned for is read after any crash the policy covers, after
    what was appended before it. Ids rise, and none is given twice, not even after all was
    acknowledged and the process restarted. What cannot be read is reported and counted, and keeps
    nothing else from being read. The cap holds at every moment.

    *Not guaranteed:* exactly once. An acknowledgement is on the disk within half a second, or when
    :meth:`flush` or :meth:`close` returns; a crash before that returns the record again. While a
    :class:`~leaderq.producing.BufferedProducer` uses the journal, a record that could not be stored
    *halts* it: whatever anybody appends behind that record is refused with the same error, until
    the producer lets it go on, a moment after the last of them was told.

    :raises JournalLocked: the directory is open elsewhere.
    :raises JournalFailed: it cannot be read or written.
    :raises ConfigurationError: a limit that cannot be kept.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        sync: Policy = EVERY_ITEM,
        segment_bytes: int = SEGMENT_BYTES,
        max_bytes: int | None = None,
        reserve_bytes: int = 0,
        clock: Callable[[], float] | None = None,
        disk: Disk | None = None,
    ) -> None:
        self._segment_bytes = fitting_segment_bytes(segment_bytes, max_bytes, reserve_bytes)
        allot_bytes = allotment(self._segment_bytes, is_durable=sync == EVERY_ITEM)
        self._max_bytes = None if max_bytes is None else max_bytes - allot_bytes
        self._reserve_bytes = reserve_bytes
        self._clock = clocks.calendar_s if clock is None else clock
        self.directory = Path(directory)
        self.sync = sync
        self.counters = JournalCounters()
        # Reentrant only so that a call which interrupts its own thread can be refused.
        self._gate = primitives.RLock()
        self.when_room: Callable[[], None] | None = None
        """Called on the writer's thread when segments were deleted; must not wait for anything."""
        self._closed = False
        self._closing = primitives.Lock()
        self._disk = disk or Disk()
        with self._translated("opened"):
            make_directories(self._disk, self.directory)
            self._lock = DirectoryLock(self.directory)
            try:
                self._set_up(recovered(self._disk, self.directory), allot_bytes)
            except BaseException:
                self._lock.release()
                raise

    def _set_up(self, found: Recovered, allot_bytes: int) -> None:
        parts = JournalParts(self._disk, self.directory, self._gate, found.index, self.counters)
        self._index, self.report = found.index, found.report
        self.counters.corrupt = sum(damage.lost for damage in self.report.damages)
        self._committer = Committer(self._gate, group_bytes=min(GROUP_BYTES, self._segment_bytes))
        large_bytes = self._segment_bytes // 2
        self._acks = Acks(
            parts, self._committer, large_bytes=large_bytes, damages=self.report.damages
        )
        self._reader = SegmentReader(parts, self._acks.lose)
        self._cursor = CursorWriter(parts, found.sequence, self._reader.forget)
        self._store = BatchStore(
            parts,
            self._cursor,
            policy=self.sync,
            segment_bytes=self._segment_bytes,
            reserve_bytes=self._reserve_bytes,
            clock=self._clock,
            previous=found.previous,
            stamp=chance.token_bits(32) if found.stamp is None else found.stamp,
            allot_bytes=allot_bytes,
        )
        self.halt = self._store.halt
        self._store.begin()
        interval = self.sync.seconds if isinstance(self.sync, Interval) else float("inf")
        self._committer.start(
            self._store,
            chores=self._tidy,
            upkeep=self._keep_up,
            upkeep_every_s=interval,
        )

    def _tidy(self) -> None:
        """Delete segments that are done with, and tell that there is room."""
        before = self._index.bytes_used
        self._cursor.tidy()
        if self._index.bytes_used < before and self.when_room is not None:
            self.when_room()

    def _keep_up(self) -> None:
        """Force out overdue records, close a segment that is used up."""
        self._store.sync()
        if self._acks.take_spent(self._store.current):
            self._store.roll()
            with self._gate:
                self._committer.kick()

    def append(
        self, payload: Bytes, *, ttl_s: float | None = None, timeout_s: float | None = WAIT_S
    ) -> int:
        """Store one record; return its id. When this returns it is as durable as the policy says.

        ``ttl_s``: noted with the record as the instant at which it expires.

        :raises JournalFull: the cap, the reserve or the disk; nothing was stored.
        :raises JournalFailed: the disk refused; the record was taken back.
        :raises JournalSlow: no answer in time; it may be stored later, or not.
        :raises JournalRecordTooLarge, JournalClosed: nothing was stored.
        """
        return self._through(self._batch([payload], ttl_s), timeout_s, may_share=True)

    def append_many(
        self,
        payloads: Iterable[Bytes],
        *,
        ttl_s: float | None = None,
        timeout_s: float | None = WAIT_S,
    ) -> range:
        """Store several records behind each other, which together fit into a segment; return their
        ids. All are stored, or an error is raised and none is; but a crash before this returns may
        leave the first few of them. Raises as :meth:`append`.
        """
        batch = self._batch(payloads, ttl_s)
        count = len(batch.payloads)  # others may join the batch once it waits
        if not count:
            return range(0)
        return range(first := self._through(batch, timeout_s), first + count)

    def append_soon(
        self,
        payload: Bytes,
        on_durable: OnDurable | None = None,
        *,
        ttl_s: float | None = None,
        timeout_s: float | None = WAIT_S,
    ) -> None:
        """Have one record stored in the background, in the order of the calls.

        ``on_durable(id, error)`` is called once: with the id when the record is as durable as the
        policy says, or with ``None`` and the error for which it is not stored. It is called on the
        writer's thread, and must neither take long nor call a method that waits for the writer
        (``append``, ``append_many``, ``flush``, ``close`` raise ``WouldDeadlock`` there).

        Waits only while 16 MiB are on their way to the disk.

        :raises JournalFull: the cap is reached; other reasons are told to ``on_durable``.
        :raises JournalSlow: no room came in time; nothing was stored.
        :raises JournalRecordTooLarge, JournalClosed: nothing was stored.
        """
        require(timeout("timeout_s", timeout_s))
        self._refuse_if_closed()
        data = payload if type(payload) is bytes else bytes(memoryview(payload))
        size, expires_us = HEADER_BYTES + HEAD_BYTES + len(data), self._expires_us(ttl_s)
        if expires_us is not None:
            size += EXPIRY_BYTES
        if size > self._segment_bytes:
            raise JournalRecordTooLarge(size=size, limit=self._segment_bytes)
        committer = self._committer
        with self._gate:
            # The usual case costs no call: a producer does this for each of its messages.
            if (
                self._closed
                or self._max_bytes is not None
                or committer.waiting_bytes > WAITING_BYTES
            ):
                self._admit(size, timeout_s)
            batch = committer.join(data, expires_us)
            if on_durable is not None:
                batch.add_callback(on_durable)

    def flush(self, timeout_s: float | None = WAIT_S) -> None:
        """Wait until all accepted records are on the disk, whatever the policy, and all
        acknowledgements too.

        :raises JournalFailed: a sync failed, this one or one since the last flush.
        :raises JournalSlow: not in time.
        """
        self._refuse_if_closed()
        self._through(CommitBatch(sync=True, size=0), timeout_s)
        with self._translated("saved"):
            self._cursor.save()

    def _batch(self, payloads: Iterable[Bytes], ttl_s: float | None) -> CommitBatch:
        self._refuse_if_closed()
        batch, expires_us = CommitBatch(), self._expires_us(ttl_s)
        for one in payloads:
            batch.add(one if type(one) is bytes else bytes(memoryview(one)), expires_us)
        if batch.size > self._segment_bytes:
            raise JournalRecordTooLarge(size=batch.size, limit=self._segment_bytes)
        return batch

    def _through(
        self, batch: CommitBatch, timeout_s: float | None, *, may_share: bool = False
    ) -> int:
        """Have a batch written, or with ``may_share`` its one record with others, and wait for it;
        return its first id."""
        require(timeout("timeout_s", timeout_s))
        deadline, position, waker = Deadline(timeout_s), 0, Waker()
        with self._gate:
            self._admit(batch.size, timeout_s)
            self._refuse_to_wait_for_myself()
            if may_share:
                batch = self._committer.join(batch.payloads[0], batch.expiries.get(0))
                position = len(batch.payloads) - 1
            else:
                self._committer.line_up(batch)
            batch.waiting.append(waker)
        waker.wait(deadline.remaining_s)
        if not batch.is_done:
            raise JournalSlow(
                "the journal's disk did not take the record in time; it may be stored later, or not"
            )
        if batch.error is not None:
            raise batch.error
        return batch.first_id + position

    def _expires_us(self, ttl_s: float | None) -> int | None:
        return None if ttl_s is None else int((self._clock() + ttl_s) * 1e6)

    def _admit(self, size: int, timeout_s: float | None) -> None:
        """Under the gate: let so many more bytes be accepted, after waiting for that if need be."""
        deadline = Deadline(timeout_s)
        while True:
            if self._closed or not self._lock.is_held:
                raise self._closed_error()
            if not self._committer.is_crowded:
                break
            self._refuse_to_wait_for_myself()
            if deadline.is_over:
                raise JournalSlow(
                    "too much waits for the journal's disk, which took too little in time; "
                    "nothing was stored"
                )
            self._committer.room.wait(deadline.remaining_s)
        if self._max_bytes is None or not size:
            return
        taken = self._index.bytes_used + self._committer.waiting_bytes
        if taken + size > self._max_bytes:
            self.counters.refused_full += 1
            self._acks.press()
            raise JournalFull(
                f"journal {str(self.directory)!r} takes {taken} bytes of the {self._max_bytes} it "
                f"may, and {size} more were to be stored; acknowledge what is done with, or raise "
                "max_bytes"
            )

    def read(
        self, after_id: int = 0, *, max_items: int = 1000, max_bytes: int = 1 << 20
    ) -> list[JournalRecord]:
        """Return unacknowledged records behind ``after_id``, in order: at least one if there is
        any, as many as the limits allow. Expired ones are among them, for the caller to decide.

        :raises JournalFailed: the file system failed. Damage does not raise: it is passed over, see
            :attr:`damages`.
        """
        self._refuse_if_closed()
        with self._translated("read"):
            raws = self._reader.read(after_id, max_items=max_items, max_bytes=max_bytes)
        return [record_of(raw) for raw in raws]

    def ack(self, record_id: int) -> bool:
        """Mark a record as done with; return whether it was not before.

        :raises ValueError: no record has had this id yet.
        """
        return self.ack_many((record_id,)) == 1

    def ack_many(self, record_ids: Iterable[int]) -> int:
        """Mark records as done with, in any order; return how many were not before.

        :raises ValueError: no record has had one of these ids yet; none was marked.
        """
        self._refuse_if_closed()
        return self._acks.ack(record_ids)

    def ack_to(self, record_id: int) -> int:
        """Mark all records up to this one as done with; return how many were not before."""
        self._refuse_if_closed()
        return self._acks.ack_to(record_id)

    @property
    def depth(self) -> int:
        """How many records are not done with."""
        return self._index.depth

    @property
    def bytes_used(self) -> int:
        """Bytes of the segment files, also of records that are done with and not yet deleted."""
        return self._index.bytes_used

    @property
    def room_bytes(self) -> int | None:
        """How many more bytes the limits leave at present; 0 once it is closed; ``None`` with
        neither cap nor reserve."""
        if self._closed or not self._lock.is_held:
            return 0
        with self._gate:
            taken = self._index.bytes_used + self._committer.waiting_bytes + HEADER_BYTES
        rooms = [] if self._max_bytes is None else [self._max_bytes - taken]
        if self._reserve_bytes:
            with self._translated("looked at"):
                rooms.append(self._disk.free_bytes(self.directory) - self._reserve_bytes)
        return max(0, min(rooms)) if rooms else None

    def place(self, record_id: int) -> JournalPlace | None:
        """Return a record's place; ``None`` if its segment is gone. Also of a closed journal."""
        with self._gate:
            segment = self._index.holding(record_id)
        if segment is None:
            return None
        return JournalPlace(
            self.directory, segment.path.name, record_id - segment.first_id, record_id
        )

    @property
    def next_id(self) -> int:
        """The id that the next record gets."""
        return self._index.next_id

    @property
    def damages(self) -> Sequence[Damage]:
        """All damages found so far, at opening and since."""
        return tuple(self._acks.damages)

    def is_entered(self) -> bool:
        """Return whether this call interrupts its own thread inside the journal."""
        return bool(self._gate._is_owned())  # type: ignore[attr-defined]

    @property
    def is_writer(self) -> bool:
        """Whether this is the writer's thread, which calls ``on_durable``."""
        return self._committer.is_writer

    def close(self, timeout_s: float | None = WAIT_S) -> None:
        """Write waiting records, force them out, save the acknowledgements, and let others open the
        directory. May be called twice.

        :raises JournalSlow: the disk did not take it in time; the directory stays locked.
        :raises JournalFailed: a sync failed, see :meth:`flush`; the journal is closed all the same.
        :raises WouldDeadlock: called by ``on_durable``, on the thread that has to end first; the
            journal stays open.
        """
        require(timeout("timeout_s", timeout_s))
        if not self._is_ours():  # closed, or of the process that this one was forked from
            self._closed = True
            return
        self._refuse_reentry()
        self._refuse_to_wait_for_myself()  # before the lock, whose holder may wait for this thread
        with self._closing:
            if not self._is_ours():  # closed by another thread meanwhile
                return
            with self._gate:
                self._closed = True
                self._committer.room.notify_all()
            if not self._committer.leave(timeout_s):
                raise JournalSlow(
                    f"journal {str(self.directory)!r} could not write what waits within "
                    f"{timeout_s} s"
                )
            last = CommitBatch(sync=True, size=0)
            self._store.store(last)
            try:
                with self._translated("saved"):
                    self._cursor.tidy()
                    self._cursor.save(clean=last.error is None)
            finally:
                self._store.close()
                self._reader.close()
                self._cursor.close()
                self._lock.release()
            if last.error is not None:
                raise last.error

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _is_ours(self) -> bool:
        return self._lock.is_held

    def _refuse_if_closed(self) -> None:
        """Called first in every public call: a forked child may never get the lock, and this thread
        may hold it itself.
        """
        if self._closed or not self._lock.is_held:
            raise self._closed_error()
        self._refuse_reentry()

    def _closed_error(self) -> JournalClosed:
        return JournalClosed(
            f"journal {str(self.directory)!r} is closed, or was opened before this process was "
            "forked"
        )

    def _refuse_reentry(self) -> None:
        if self.is_entered():
            raise WouldDeadlock(
                f"journal {str(self.directory)!r} was called by a finalizer or a signal handler "
                "that interrupted this thread inside the journal; have another thread call it"
            )

    def _refuse_to_wait_for_myself(self) -> None:
        if self._committer.is_writer:
            raise WouldDeadlock(
                "a callback of the journal was about to wait for the journal's writer, which is "
                "the thread that calls it; have another thread do that"
            )

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        """Raise ``JournalFailed`` instead of ``OSError``, naming the journal."""
        try:
            yield
        except OSError as exc:
            raise JournalFailed(
                f"journal {str(self.directory)!r} could not be {done}: {exc}"
            ) from exc
