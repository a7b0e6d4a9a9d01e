"""A journal on disk: what ``append`` has returned for is there after a crash, in order, until it is acknowledged.

Who is authoritative: the segment files for what was appended, the cursor for what was acknowledged. Everything else is
recomputed from them when the journal is opened.

States: open; closing (nothing is accepted, what waits is written); closed.

=============================  ==============================================================================================
what fails                     what happens
=============================  ==============================================================================================
the process dies               nothing accepted is lost, whatever the policy; acknowledgements of the last half second
                               may be, so those records come again
the host dies                  what the policy allows is lost (``EVERY_ITEM``: nothing); ids go on behind all given out
a write, a full disk           the caller is told, the file is cut back to its last whole record, later appends work
                               once there is room
a sync                         the caller is told, the record cut off, the file never used again (see ``store``)
a record is spoilt             it is reported and counted, what follows is read, its segment is kept as ``*.bad`` (see
                               ``recovery``)
somebody else has it open      ``JournalLocked``
=============================  ==============================================================================================
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final

from leaderq.errors import JournalClosed, JournalFull, JournalRecordTooLarge, JournalSlow, WouldDeadlock
from leaderq.producing.journal.batch import Batch, Bytes, OnDurable, batch_of
from leaderq.producing.journal.committer import WAITING_BYTES, outcome
from leaderq.producing.journal.counters import Counters
from leaderq.producing.journal.disk import Disk
from leaderq.producing.journal.entry import Entry, entry_of
from leaderq.producing.journal.limits import SEGMENT_BYTES, allotment, fitting_segment_bytes
from leaderq.producing.journal.opening import First, opened
from leaderq.producing.journal.policy import EVERY_ITEM, Policy
from leaderq.producing.journal.record import EXPIRY_BYTES, HEAD_BYTES
from leaderq.producing.journal.report import Damage
from leaderq.producing.journal.segment_header import HEADER_BYTES
from leaderq.producing.journal.translation import translated
from leaderq.producing.journal.waiting import Signal
from leaderq.producing.journal.wiring import Wiring

WAIT_S: Final = 30.0


class Journal:
    """Records of any bytes, appended by any thread, read in order, acknowledged in any order.

    Opening it recovers whatever is in ``directory`` (made if it is not there); :attr:`report` tells what was found.

    ``sync``: when records are forced to the disk, see ``policy``. ``max_bytes``: what the segment files may take in all,
    files set aside not counted; ``reserve_bytes``: what must stay free on the file system. ``ttl_s``: after how long a
    record expires unless ``append`` says otherwise. ``clock``: seconds of the epoch. ``on_expired`` gets each expired
    record, once, from the thread that reads.

    *Guarantees:* what :meth:`append` returned for is read after any crash the policy covers, after what was appended before
    it. Ids rise, and none is given twice, not even after all was acknowledged and the process restarted. What cannot be read
    is reported and counted, and keeps nothing else from being read. The cap holds at every moment.

    *Not guaranteed:* exactly once. An acknowledgement is on the disk within half a second, or when :meth:`flush` or
    :meth:`close` returns; a crash before that gives the record out again.

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
        self._segment_bytes = fitting_segment_bytes(
            segment_bytes, max_bytes=max_bytes, reserve_bytes=reserve_bytes, ttl_s=ttl_s
        )
        allot_bytes = allotment(self._segment_bytes, is_durable=sync == EVERY_ITEM)
        self._max_bytes = None if max_bytes is None else max_bytes - allot_bytes
        self._reserve_bytes, self._ttl_s, self._clock = reserve_bytes, ttl_s, clock
        self.directory = Path(directory)
        self.sync = sync
        self.counters = Counters()
        self._gate = threading.Lock()
        self._closed = False
        self._closing = threading.Lock()
        self._disk = disk or Disk()
        with translated(self.directory, "opened"):
            self._lock, first = opened(self._disk, self.directory)
        self._shelf, self.report = first.shelf, first.report
        self.counters.corrupt = sum(damage.lost for damage in self.report.damages)
        try:
            with translated(self.directory, "opened"):
                self._set_up(first, on_expired)
        except BaseException:
            self._lock.release()
            raise

    def _set_up(self, first: First, on_expired: Callable[[Entry], object] | None) -> None:
        parts = Wiring(
            self._disk,
            self.directory,
            self._gate,
            self.counters,
            first,
            self.sync,
            self._segment_bytes,
            self._reserve_bytes,
            self._clock,
            on_expired,
        )
        self._keeper = parts.keeper()
        self._store = parts.store(self._keeper)
        self._acks = parts.acknowledging(self._store)
        self._reader = parts.reader(self._keeper, self._store, self._acks)
        self._committer = parts.committer(self._keeper, self._store, self._acks)

    def append(self, payload: Bytes, *, ttl_s: float | None = None, timeout_s: float = WAIT_S) -> int:
        """Store one record; gives its id. When this returns it is as durable as the policy says.

        :raises JournalFull: the cap, the reserve or the disk; nothing was stored.
        :raises JournalFailed: the disk refused; the record was taken back.
        :raises JournalSlow: no answer in time; it may be stored later, or not.
        :raises JournalRecordTooLarge, JournalClosed: nothing was stored.
        """
        return self._through(self._batch([payload], ttl_s), timeout_s, may_share=True)

    def append_many(self, payloads: Iterable[Bytes], *, ttl_s: float | None = None, timeout_s: float = WAIT_S) -> range:
        """Store several records behind each other; gives their ids. All are stored, or an error is raised and none is.

        A crash before this returns may leave the first few of them.

        :raises: as :meth:`append`; together they must fit into one segment.
        """
        batch = self._batch(payloads, ttl_s)
        count = len(batch.payloads)  # others may join the batch once it waits
        if not count:
            return range(0)
        return range(first := self._through(batch, timeout_s), first + count)

    def append_soon(
        self, payload: Bytes, on_durable: OnDurable | None = None, *, ttl_s: float | None = None, timeout_s: float = WAIT_S
    ) -> None:
        """Have one record stored in the background, in the order of the calls.

        ``on_durable(id, error)`` is called once: with the id when the record is as durable as the policy says, or with
        ``None`` and the error for which it is not stored. It is called in the writer's thread, and must neither take long
        nor call what waits for the writer (``append``, ``append_many``, ``flush``, ``close``: these raise ``WouldDeadlock``
        there). Waits only while 16 MiB are on their way to the disk.

        :raises JournalFull: the cap is reached; other reasons are told to ``on_durable``.
        :raises JournalSlow: no room came in time; nothing was stored.
        :raises JournalRecordTooLarge, JournalClosed: nothing was stored.
        """
        if not self._lock.is_held:  # before the gate, see _refuse_if_closed
            self._refuse_if_closed()
        data = payload if type(payload) is bytes else bytes(memoryview(payload))
        size, expires_us = HEADER_BYTES + HEAD_BYTES + len(data), None
        if ttl_s is not None or self._ttl_s is not None:
            size, expires_us = size + EXPIRY_BYTES, self._expires_us(ttl_s)
        if size > self._segment_bytes:
            raise JournalRecordTooLarge(size=size, limit=self._segment_bytes)
        committer = self._committer
        room = None
        while True:
            with self._gate:
                # The usual case without a call: this is what a producer does for each of its messages.
                if self._closed or self._max_bytes is not None or committer.waiting_bytes > WAITING_BYTES:
                    room = self._admit(size, timeout_s)
                if room is None:
                    batch, position = committer.join(data, size - HEADER_BYTES, expires_us)
                    if on_durable is not None:
                        batch.add_callback(position, on_durable)
                    return
            timeout_s, room = committer.await_room(room, timeout_s), None

    def flush(self, timeout_s: float = WAIT_S) -> None:
        """Wait until all that was accepted is on the disk, whatever the policy, and what was acknowledged too.

        :raises JournalFailed: a sync failed, this one or one since the last flush.
        :raises JournalSlow: not in time.
        """
        self._refuse_if_closed()
        self._through(Batch(sync=True), timeout_s)
        with translated(self.directory, "saved"):
            self._keeper.save()

    def read(self, after_id: int = 0, *, max_items: int = 1000, max_bytes: int = 1 << 20) -> list[Entry]:
        """Unacknowledged records behind ``after_id``, in order: at least one if there is any, as many as the limits allow.

        What expired meanwhile is counted, given to ``on_expired`` and acknowledged instead.

        :raises JournalFailed: the file system failed. What is spoilt does not raise: it is passed, see :attr:`damages`.
        """
        self._refuse_if_closed()
        while True:
            with translated(self.directory, "read"):
                raws = self._reader.read(after_id, max_items=max_items, max_bytes=max_bytes)
            now_s = self._clock()
            entries = [entry_of(raw) for raw in raws]
            left = [entry for entry in entries if entry.expires_at is None or entry.expires_at > now_s]
            if len(left) == len(entries):
                return entries
            for entry in entries:
                if entry.expires_at is not None and entry.expires_at <= now_s:
                    self._acks.expire(entry)
            if left:
                return left
            after_id = entries[-1].id

    def ack(self, record_id: int) -> bool:
        """Say that a record is done with; gives whether it was not before.

        :raises ValueError: no record has had this id yet.
        """
        return self.ack_many((record_id,)) == 1

    def ack_many(self, record_ids: Iterable[int]) -> int:
        """Say that records are done with, in any order; gives how many were not before. All, or none if this raises.

        :raises ValueError: no record has had one of these ids yet.
        """
        self._refuse_if_closed()
        return self._acks.ack(record_ids)

    def ack_to(self, record_id: int) -> int:
        """Say that all records up to this one are done with; gives how many were not before."""
        self._refuse_if_closed()
        return self._acks.ack_to(record_id)

    @property
    def depth(self) -> int:
        """How many records are not done with."""
        return self._shelf.depth

    @property
    def bytes_used(self) -> int:
        """Bytes of the segment files, those of records that are done with and not yet deleted included."""
        return self._shelf.bytes_used

    @property
    def room_bytes(self) -> int | None:
        """How many more bytes the limits leave at present; 0 once it is closed; ``None`` with no cap and no reserve."""
        if self._closed or not self._lock.is_held:
            return 0
        with self._gate:
            taken = self._shelf.bytes_used + self._committer.waiting_bytes + HEADER_BYTES
        rooms = [] if self._max_bytes is None else [self._max_bytes - taken]
        if self._reserve_bytes:
            with translated(self.directory, "looked at"):
                rooms.append(self._disk.free_bytes(self.directory) - self._reserve_bytes)
        return max(0, min(rooms)) if rooms else None

    @property
    def next_id(self) -> int:
        """The id that the next record gets."""
        return self._store.next_id

    @property
    def oldest_age_s(self) -> float | None:
        """Seconds since the oldest record that is not done with was appended; ``None`` if there is none.

        Only looks: what has expired counts, as in :attr:`depth`, until :meth:`read` comes upon it; what is spoilt is passed.

        :raises JournalClosed, JournalFailed: as :meth:`read`.
        """
        self._refuse_if_closed()
        with translated(self.directory, "read"):
            first = self._reader.oldest()
        return max(0.0, self._clock() - entry_of(first).appended_at) if first else None

    @property
    def damages(self) -> Sequence[Damage]:
        """All found spoilt so far, at opening and since."""
        return tuple(self._acks.damages)

    def close(self, timeout_s: float = WAIT_S) -> None:
        """Write what waits, force it out, save what is acknowledged, and let others open the directory. May be called twice.

        :raises JournalSlow: the disk did not take it in time; the directory stays locked.
        :raises JournalFailed: a sync failed, see :meth:`flush`; the journal is closed all the same.
        :raises WouldDeadlock: called by ``on_durable``, in the thread that has to end first; the journal stays open.
        """
        if not self._is_ours():  # closed, or the journal of the process that this one was forked from
            self._closed = True
            return
        self._refuse_to_wait_for_myself()  # before the lock, whose holder may be waiting for this thread
        with self._closing:
            if not self._is_ours():  # closed by another thread meanwhile
                return
            with self._gate:
                self._closed = True
            if not self._committer.leave(timeout_s):
                raise JournalSlow(f"journal {str(self.directory)!r} could not write what waits within {timeout_s:g} s")
            last = Batch(sync=True)
            self._store.store(last)
            try:
                with translated(self.directory, "saved"):
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
        self._refuse_if_closed()
        has_ttl = ttl_s is not None or self._ttl_s is not None
        batch = batch_of(payloads, self._expires_us(ttl_s) if has_ttl else None)
        if batch.size > self._segment_bytes:
            raise JournalRecordTooLarge(size=batch.size, limit=self._segment_bytes)
        return batch

    def _through(self, batch: Batch, timeout_s: float, *, may_share: bool = False) -> int:
        """Have a batch written, or with ``may_share`` its one record with others, and wait for it; gives its first id."""
        signal, position, committer, give_up_s = None, 0, self._committer, time.monotonic() + timeout_s
        while True:
            with self._gate:
                if (room := self._admit(batch.size, timeout_s)) is None:
                    if not (is_own := committer.write(batch)):
                        self._refuse_to_wait_for_myself()
                        if may_share:
                            batch, position = committer.join(
                                batch.payloads[0], batch.size - HEADER_BYTES, batch.expiries.get(0)
                            )
                        else:
                            committer.line_up(batch)
                        signal = batch.signal()
                    break
            timeout_s = committer.await_room(room, timeout_s)
        if is_own:
            committer.written(batch)
        return outcome(batch, signal, give_up_s) + position

    def _expires_us(self, ttl_s: float | None) -> int:
        lasts_s = self._ttl_s if ttl_s is None else ttl_s
        return int((self._clock() + (lasts_s or 0.0)) * 1e6)

    def _admit(self, size: int, timeout_s: float) -> Signal | None:
        """Under the gate: let so many more bytes be accepted; else gives what to wait for outside of it."""
        self._refuse_if_closed()
        if self._committer.is_crowded:
            self._refuse_to_wait_for_myself()
            if timeout_s <= 0:
                raise JournalSlow("too much waits for the journal's disk, which took too little in time; nothing was stored")
            return self._committer.room.join()
        if self._max_bytes is None or not size:
            return None
        taken = self._shelf.bytes_used + self._committer.waiting_bytes
        if taken + size > self._max_bytes:
            self.counters.refused_full += 1
            self._acks.press()
            raise JournalFull(
                f"journal {str(self.directory)!r} takes {taken} bytes of the {self._max_bytes} it may, and {size} more were "
                "to be stored; acknowledge what is done with, or raise max_bytes"
            )
        return None

    def _refuse_if_closed(self) -> None:
        """Asked by every public call before it takes a lock, which in a forked child may be held for ever."""
        if self._closed or not self._lock.is_held:
            raise JournalClosed(f"journal {str(self.directory)!r} is closed, or was opened before this process was forked")

    def _is_ours(self) -> bool:
        return self._lock.is_held

    def _refuse_to_wait_for_myself(self) -> None:
        if self._committer.is_writer:
            raise WouldDeadlock(
                "a callback of the journal was about to wait for the journal's writer, which is the thread that calls it; "
                "have another thread do that"
            )
