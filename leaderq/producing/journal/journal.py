"""A journal on disk: what ``append`` has returned for is there after a crash, in order, until it is acknowledged.

Who is authoritative: the segment files for what was appended, the cursor for what was acknowledged. Everything else is recomputed from
them when the journal is opened.

States: open; closing (nothing is accepted, what waits is written); closed.

=============================  =====================================================================================================
what fails                     what happens
=============================  =====================================================================================================
the process dies               nothing accepted is lost, whatever the policy; acknowledgements of the last half second may be, so those
                               records come again
the host dies                  what the policy allows is lost (``EVERY_ITEM``: nothing); ids go on behind all that were given out
a write, a full disk           the caller is told, the file is cut back to its last whole record, later appends work when there is room
a sync                         the caller is told, the record cut off, the file never used again (see ``store``)
a record is spoilt             it is reported and counted, what follows is read, its segment is kept as ``*.bad`` (see ``recovery``)
somebody else has it open      ``JournalLocked``
=============================  =====================================================================================================
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Union

from leaderq.errors import (
    ConfigurationError,
    JournalClosed,
    JournalFailed,
    JournalFull,
    JournalRecordTooLarge,
    JournalSlow,
    WouldDeadlock,
)
from leaderq.producing.journal.batch import Batch, OnDurable, contained, log
from leaderq.producing.journal.committer import Committer, outcome
from leaderq.producing.journal.counters import Counters
from leaderq.producing.journal.directory_lock import DirectoryLock
from leaderq.producing.journal.disk import Disk
from leaderq.producing.journal.entry import Entry
from leaderq.producing.journal.keeper import Keeper
from leaderq.producing.journal.opening import First, opened
from leaderq.producing.journal.policy import EVERY_ITEM, Interval, Policy
from leaderq.producing.journal.reader import Reader
from leaderq.producing.journal.record import EXPIRY_BYTES, HEAD_BYTES, Raw
from leaderq.producing.journal.report import Damage, RecoveryReport
from leaderq.producing.journal.segment import Segment
from leaderq.producing.journal.segment_header import HEADER_BYTES
from leaderq.producing.journal.store import Store

SEGMENT_BYTES: Final = 32 << 20
LEAST_SEGMENT_BYTES: Final = 4096
WAIT_S: Final = 30.0
_SEGMENTS_IN_CAP: Final = 4
Bytes = Union[bytes, bytearray, memoryview]


class Journal:
    """Records of any bytes, appended by any thread, read in order, acknowledged in any order.

    Opening it recovers whatever is in ``directory`` (made if it is not there); :attr:`report` tells what was found.

    ``sync``: when records are forced to the disk, see ``policy``. ``max_bytes``: what the segment files may take in all, files set aside not
    counted; ``reserve_bytes``: what must stay free on the file system. ``ttl_s``: after how long a record expires unless ``append`` says
    otherwise. ``clock``: seconds of the epoch. ``on_expired`` gets each expired record, once, from the thread that reads.

    *Guarantees:* what :meth:`append` returned for is read after any crash the policy covers, after what was appended before it. Ids rise,
    and none is given twice, not even after all was acknowledged and the process restarted. What cannot be read is reported and
    counted, and keeps nothing else from being read. The cap holds at every moment.

    *Not guaranteed:* exactly once. An acknowledgement is on the disk within half a second, or when :meth:`flush` or :meth:`close`
    returns; a crash before that gives the record out again.

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
        ttl_s: float | None = None,
        clock: Callable[[], float] = time.time,
        on_expired: Callable[[Entry], object] | None = None,
        disk: Disk | None = None,
    ) -> None:
        self._segment_bytes = _segment_bytes(segment_bytes, max_bytes)
        self._max_bytes = max_bytes
        self._ttl_s, self._clock, self._on_expired = ttl_s, clock, on_expired
        self.directory = Path(directory)
        self.counters = Counters()
        self._gate = threading.Lock()
        self._closed = False
        self._closing = threading.Lock()
        self._wants_roll = False
        disk = disk or Disk()
        with self._translated("opened"):
            self._lock, first = opened(disk, self.directory)
        self._shelf, self.report = first.shelf, first.report
        self._damages = list(self.report.damages)
        self.counters.corrupt = sum(damage.lost for damage in self._damages)
        try:
            with self._translated("opened"):
                self._set_up(disk, first, sync, reserve_bytes)
        except BaseException:
            self._lock.release()
            raise

    def _set_up(self, disk: Disk, first: First, sync: Policy, reserve_bytes: int) -> None:
        self._keeper = Keeper(disk, self.directory, self._gate, self._shelf, self.counters, sequence=first.sequence)
        self._store = Store(
            disk,
            self.directory,
            self._gate,
            self._shelf,
            self._keeper,
            self.counters,
            policy=sync,
            segment_bytes=self._segment_bytes,
            reserve_bytes=reserve_bytes,
            clock=self._clock,
            next_id=first.next_id,
        )
        self._reader = Reader(disk, self._gate, self._shelf, self._hurt)
        self._keeper.next_id = lambda: self._store.next_id
        self._keeper.forget = self._reader.forget
        self._keeper.save()
        self._store.begin(*first.previous)
        self._committer = Committer(
            self._gate,
            store=self._store.store,
            settle=self._store.settle,
            chores=self._keeper.tidy,
            with_pen=self._with_pen,
            with_pen_every_s=sync.seconds if isinstance(sync, Interval) else None,
        )
        self._committer.start()

    def append(self, payload: Bytes, *, ttl_s: float | None = None, timeout_s: float = WAIT_S) -> int:
        """Store one record; gives its id. When this returns it is as durable as the policy says.

        :raises JournalFull: the cap, the reserve or the disk; nothing was stored.
        :raises JournalFailed: the disk refused; the record was taken back.
        :raises JournalSlow: no answer in time; it may be stored later, or not.
        :raises JournalRecordTooLarge, JournalClosed: nothing was stored.
        """
        batch, give_up_s = self._batch([payload], ttl_s), time.monotonic() + timeout_s
        with self._gate:
            self._admit(batch.size, give_up_s)
            if is_own := self._committer.write(batch):
                position, signal = 0, None
            else:
                self._refuse_to_wait_for_myself()
                batch, position = self._committer.join(batch)
                signal = batch.signal()
        if is_own:
            self._committer.written(batch)
        return outcome(batch, signal, give_up_s) + position

    def append_many(self, payloads: Iterable[Bytes], *, ttl_s: float | None = None, timeout_s: float = WAIT_S) -> range:
        """Store several records behind each other; gives their ids. All are stored, or an error is raised and none is.

        A crash before this returns may leave the first few of them.

        :raises: as :meth:`append`; together they must fit into one segment.
        """
        batch, give_up_s = self._batch(payloads, ttl_s), time.monotonic() + timeout_s
        if not batch.payloads:
            return range(0)
        return range(first := self._through(batch, give_up_s), first + len(batch.payloads))

    def append_soon(
        self, payload: Bytes, on_durable: OnDurable | None = None, *, ttl_s: float | None = None, timeout_s: float = WAIT_S
    ) -> None:
        """Have one record stored in the background, in the order of the calls.

        ``on_durable(id, error)`` is called once: with the id when the record is as durable as the policy says, or with ``None`` and the error
        for which it is not stored. It is called in the writer's thread, and must neither take long nor call what waits for the writer
        (``append``, ``flush``: these raise ``WouldDeadlock`` there). Waits only while 16 MiB are on their way to the disk.

        :raises JournalFull: the cap is reached; other reasons are told to ``on_durable``.
        :raises JournalSlow: no room came in time; nothing was stored.
        :raises JournalRecordTooLarge, JournalClosed: nothing was stored.
        """
        batch = self._batch([payload], ttl_s)
        with self._gate:
            self._admit(batch.size, time.monotonic() + timeout_s)
            batch, position = self._committer.join(batch)
            if on_durable is not None:
                batch.positions.append(position)
                batch.callbacks.append(on_durable)

    def flush(self, timeout_s: float = WAIT_S) -> None:
        """Wait until all that was accepted is on the disk, whatever the policy, and what was acknowledged too.

        :raises JournalFailed: a sync failed, this one or one since the last flush.
        :raises JournalSlow: not in time.
        """
        self._through(Batch(sync=True), time.monotonic() + timeout_s)
        with self._translated("saved"):
            self._keeper.save()

    def read(self, after_id: int = 0, *, max_items: int = 1000, max_bytes: int = 1 << 20) -> list[Entry]:
        """Records behind ``after_id`` that are not acknowledged, in order: at least one if there is any, as many as the limits allow.

        What expired meanwhile is counted, given to ``on_expired`` and acknowledged instead.

        :raises JournalFailed: the file system failed. What is spoilt does not raise: it is passed, see :attr:`damages`.
        """
        self._refuse_if_closed()
        while True:
            with self._translated("read"):
                raws = self._reader.read(after_id, max_items=max_items, max_bytes=max_bytes)
            now_us = self._clock() * 1e6
            expired = [raw for raw in raws if raw.flags and raw.expires_us is not None and raw.expires_us <= now_us]
            if not expired:
                return [_entry(raw) for raw in raws]
            for raw in expired:
                self._expire(raw)
            gone = {raw.id for raw in expired}
            if left := [_entry(raw) for raw in raws if raw.id not in gone]:
                return left
            after_id = raws[-1].id

    def ack(self, record_id: int) -> bool:
        """Say that a record is done with; gives whether it was not before.

        :raises ValueError: no record has had this id yet.
        """
        return self.ack_many((record_id,)) == 1

    def ack_many(self, record_ids: Iterable[int]) -> int:
        """Say that records are done with, in any order; gives how many were not before. All, or none if this raises.

        :raises ValueError: no record has had one of these ids yet.
        """
        wanted = record_ids if isinstance(record_ids, (list, tuple, range)) else list(record_ids)
        newly = 0
        self._refuse_if_closed()
        with self._gate:
            if wanted and max(wanted) >= self._store.next_id:
                raise ValueError(f"no record has had id {max(wanted)} yet; the next will be {self._store.next_id}")
            segment = None
            for number in wanted:
                if segment is None or not segment.first_id <= number <= segment.last_id:
                    if segment is not None:
                        self._marked(segment)
                    segment = self._shelf.holding(number)
                if segment is not None:
                    newly += self._shelf.mark(segment, number, number)
            if segment is not None:
                self._marked(segment)
            self.counters.acked += newly
        return newly

    def ack_to(self, record_id: int) -> int:
        """Say that all records up to this one are done with; gives how many were not before."""
        self._refuse_if_closed()
        with self._gate:
            newly = self._shelf.mark_up_to(record_id)
            self.counters.acked += newly
            for segment in self._shelf.segments:
                self._marked(segment)
        return newly

    @property
    def depth(self) -> int:
        """How many records are not done with."""
        return self._shelf.depth

    @property
    def bytes_used(self) -> int:
        """Bytes of the segment files, those of records that are done with and not yet deleted included."""
        return self._shelf.bytes_used

    @property
    def next_id(self) -> int:
        """The id that the next record gets."""
        return self._store.next_id

    @property
    def oldest_age_s(self) -> float | None:
        """Seconds since the oldest record that is not done with was appended; ``None`` if there is none."""
        first = self.read(0, max_items=1)
        return max(0.0, self._clock() - first[0].appended_at) if first else None

    @property
    def damages(self) -> Sequence[Damage]:
        """All found spoilt so far, at opening and since."""
        return tuple(self._damages)

    def close(self, timeout_s: float = WAIT_S) -> None:
        """Write what waits, force it out, save what is acknowledged, and let others open the directory. May be called twice.

        :raises JournalSlow: the disk did not take it in time; the directory stays locked.
        :raises JournalFailed: a sync failed, see :meth:`flush`; the journal is closed all the same.
        """
        with self._closing:
            if not self._lock.is_held:  # closed, or the journal of the process that this one was forked from
                self._closed = True
                return
            with self._gate:
                self._closed = True
            if not self._committer.leave(timeout_s):
                raise JournalSlow(f"journal {str(self.directory)!r} could not write what waits within {timeout_s:g} s")
            last = Batch(sync=True)
            self._store.store(last)
            try:
                with self._translated("saved"):
                    self._keeper.tidy()
                    self._keeper.save(clean=last.error is None)
            finally:
                self._store.close()
                self._reader.close()
                self._keeper.close()
                self._lock.release()
            if last.error is not None:
                raise last.error

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _batch(self, payloads: Iterable[Bytes], ttl_s: float | None) -> Batch:
        batch = Batch()
        batch.payloads = [payload if type(payload) is bytes else bytes(payload) for payload in payloads]
        batch.size = HEADER_BYTES + HEAD_BYTES * len(batch.payloads) + sum(map(len, batch.payloads))
        if ttl_s is None:
            ttl_s = self._ttl_s
        if ttl_s is not None:
            expires_us = int((self._clock() + ttl_s) * 1e6)
            batch.expiries = dict.fromkeys(range(len(batch.payloads)), expires_us)
            batch.size += EXPIRY_BYTES * len(batch.payloads)
        if batch.size > self._segment_bytes:
            raise JournalRecordTooLarge(size=batch.size, limit=self._segment_bytes)
        return batch

    def _through(self, batch: Batch, give_up_s: float) -> int:
        """Have a batch of one's own written, and wait for it; gives its first id."""
        signal = None
        with self._gate:
            self._admit(batch.size, give_up_s)
            if not (is_own := self._committer.write(batch)):
                self._refuse_to_wait_for_myself()
                self._committer.line_up(batch)
                signal = batch.signal()
        if is_own:
            self._committer.written(batch)
        return outcome(batch, signal, give_up_s)

    def _admit(self, size: int, give_up_s: float) -> None:
        """Under the gate: whether so many more bytes may be accepted."""
        self._refuse_if_closed()
        if self._committer.is_crowded:
            self._refuse_to_wait_for_myself()
            if not self._committer.await_room(give_up_s):
                raise JournalSlow("too much waits for the journal's disk, and it took too little in time; nothing was stored")
            self._refuse_if_closed()
        if self._max_bytes is None or not size:
            return
        taken = self._shelf.bytes_used + self._committer.waiting_bytes
        if taken + size > self._max_bytes:
            self.counters.refused_full += 1
            self._wants_roll = True
            if not self._shelf.depth:
                self._committer.want_pen_work()
            raise JournalFull(
                f"journal {str(self.directory)!r} takes {taken} bytes of the {self._max_bytes} it may, and {size} more were to be "
                "stored; acknowledge what is done with, or raise max_bytes"
            )

    def _refuse_if_closed(self) -> None:
        if self._closed or not self._lock.is_held:
            raise JournalClosed(f"journal {str(self.directory)!r} is closed, or was opened before this process was forked")

    def _refuse_to_wait_for_myself(self) -> None:
        if self._committer.is_writer:
            raise WouldDeadlock("a callback of the journal was about to wait for the journal's writer, which calls it")

    def _marked(self, segment: Segment) -> None:
        """Under the gate, after records of a segment were marked: have it gone if all are."""
        if segment.is_done:
            self._committer.kick()
        elif not segment.sealed and segment.records and not segment.open_records:
            if self._wants_roll or segment.size > self._segment_bytes // 2:
                self._committer.want_pen_work()

    def _with_pen(self) -> None:
        self._store.sync()
        segment = self._store.current
        if self._wants_roll or (segment is not None and segment.size > self._segment_bytes // 2):
            self._wants_roll = False
            self._store.roll_if_done()
            with self._gate:
                self._committer.kick()

    def _expire(self, raw: Raw) -> None:
        with self._gate:
            segment = self._shelf.holding(raw.id)
            if segment is None or not self._shelf.mark(segment, raw.id, raw.id):
                return  # acknowledged, or expired by another reader
            self.counters.expired += 1
            self._marked(segment)
        if self._on_expired is not None:
            with contained("on_expired"):
                self._on_expired(_entry(raw))

    def _hurt(self, segment: Segment, damage: Damage) -> None:
        with self._gate:
            segment.damaged = True
            newly = self._shelf.mark(segment, *damage.lost_ids) if damage.lost_ids else 0
            if not newly:
                return
            self.counters.corrupt += newly
            self._damages.append(damage)
            self._marked(segment)
        log.error("journal: %d records of %s are lost (ids %s): %s", newly, segment.path, damage.lost_ids, damage.reason)

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as exc:
            raise JournalFailed(f"journal {str(self.directory)!r} could not be {done}: {exc}") from exc


def _entry(raw: Raw) -> Entry:
    if not raw.flags:
        return Entry(raw.id, raw.body, raw.appended_us / 1e6)
    expires_us = raw.expires_us
    return Entry(raw.id, raw.payload, raw.appended_us / 1e6, None if expires_us is None else expires_us / 1e6)


def _segment_bytes(wanted: int, max_bytes: int | None) -> int:
    """Several segments fit under a cap, so that room comes back bit by bit."""
    if max_bytes is not None and max_bytes < _SEGMENTS_IN_CAP * LEAST_SEGMENT_BYTES:
        raise ConfigurationError(f"max_bytes={max_bytes}: a journal needs {_SEGMENTS_IN_CAP * LEAST_SEGMENT_BYTES} bytes or more")
    if wanted < LEAST_SEGMENT_BYTES:
        raise ConfigurationError(f"segment_bytes={wanted}: a segment takes {LEAST_SEGMENT_BYTES} bytes or more")
    return wanted if max_bytes is None else min(wanted, max_bytes // _SEGMENTS_IN_CAP)
