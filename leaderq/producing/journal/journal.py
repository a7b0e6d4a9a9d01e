"""A journal on disk: records that ``append`` has accepted survive a crash, in order, until they are
acknowledged.

The segment files are authoritative about what was appended, the cursor about what was acknowledged.
Everything else is recomputed from them when the journal is opened. ``docs/design/journal.md`` has
the layout, the states, and what happens on each failure.

States: open; closing (nothing is accepted, what waits is written); closed.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Final

from leaderq.base import clock
from leaderq.base.arguments import (
    Problem,
    at_least,
    between,
    bytes_of,
    is_number,
    is_time,
    require,
    timeout,
    wanted,
)
from leaderq.base.timeouts import Deadline
from leaderq.errors import (
    ConfigurationError,
    JournalClosed,
    JournalFailed,
    JournalFull,
    JournalRecordTooLarge,
    JournalSlow,
    LeaderqError,
    WouldDeadlock,
    with_cause,
)
from leaderq.producing.journal.disk import NO_SPACE, DirectoryLock, Disk, make_directories
from leaderq.producing.journal.line import Committer, OnDurable
from leaderq.producing.journal.policy import (
    EVERY_ITEM,
    Damage,
    Policy,
)
from leaderq.producing.journal.records import (
    EXPIRES,
    Entry,
    Expiring,
    JournalRecord,
    expiring,
    microseconds,
    record_of,
    size_of,
)
from leaderq.producing.journal.recovery import Recovery
from leaderq.producing.journal.segments import HEADER_BYTES, Segment, codec_tag
from leaderq.threads import TaskWaker, Waker, primitives

log = logging.getLogger(__name__)
WAIT_S: Final = 30.0
SEGMENT_BYTES: Final = 32 << 20
_LEAST_BYTES: Final = 4096
_ALLOT_BYTES: Final = 1 << 20
_ALL: Final = 1 << 62
Bytes = bytes | bytearray | memoryview


class Journal:
    """Records of any bytes, appended by any thread, read in order, acknowledged in any order.

    Opening it recovers whatever is in ``directory`` (made if it is not there); :attr:`report` tells
    what was found.

    ``sync``: when records are forced to the disk, see ``policy``. ``max_bytes``: how many bytes all
    segment files may take together, without files set aside; ``reserve_bytes``: how many bytes must
    stay free on the file system.

    *Guarantees:* a record for which :meth:`append` has returned is read after any crash that the
    policy covers, after all records appended before it. Ids rise, and none is given twice, not even
    after all records were acknowledged and the process restarted. While the disk takes nothing,
    accepted records keep their place, and nothing more is accepted; they are stored as soon as the
    disk takes them. A record that cannot be read is reported and counted, and keeps no other from
    being read. The cap holds at every moment.

    *Not guaranteed:* exactly once. An acknowledgement is on the disk within half a second, or when
    :meth:`flush` or :meth:`close` returns; a crash before that returns the record again.

    :raises JournalLocked: the directory is open elsewhere.
    :raises JournalFailed: the journal cannot be read or written, or a later version of leaderq
        wrote it.
    :raises ConfigurationError: an argument is not what it must be, or a limit cannot be kept.
    """

    def __init__(
        self,
        directory: str | Path,
        *,
        sync: Policy = EVERY_ITEM,
        segment_bytes: int = SEGMENT_BYTES,
        max_bytes: int | None = None,
        reserve_bytes: int = 0,
        disk: Disk | None = None,
    ) -> None:
        given: Any = directory
        name = str(given) if isinstance(given, str | PathLike) else ""
        is_path = name != "" and "\0" not in name
        require(
            wanted("directory", directory, is_path, "the path of a directory"),
            wanted("sync", sync, isinstance(sync, Policy), "a policy, such as EVERY_ITEM"),
            at_least("max_bytes", max_bytes, 4 * _LEAST_BYTES, "bytes", or_none=""),
            between("segment_bytes", segment_bytes, _LEAST_BYTES, 1 << 30),
            at_least("reserve_bytes", reserve_bytes, 0),
        )
        if max_bytes is not None:
            segment_bytes = min(segment_bytes, max_bytes // 4)  # room comes back bit by bit
        allots = sync == EVERY_ITEM and segment_bytes >= 8 * _ALLOT_BYTES
        allot_bytes = _ALLOT_BYTES if allots else 0
        self._segment_bytes = segment_bytes
        self._max_bytes = None if max_bytes is None else max_bytes - allot_bytes
        self._reserve_bytes = reserve_bytes
        self.directory = Path(directory).absolute()  # the process may change its own
        self.sync = sync
        self._closing = primitives.RLock()
        """Reentrant only so that a callback which is told of the end can be refused."""
        self.when_room: Callable[[], object] = bool
        """Called on the writer's thread when there is room again; must not wait for anything."""
        self._closed = self._is_claimed = False
        self._disk = disk or Disk()
        with self._translated("opened"):
            make_directories(self._disk, self.directory)
            self._lock = DirectoryLock(self.directory)
            try:
                self._set_up(Recovery(self._disk, self.directory), allot_bytes)
            except BaseException:
                self._lock.release()
                raise

    def _set_up(self, found: Recovery, allot_bytes: int) -> None:
        self._index, self.report = found.index, found.report
        self._gate, self.counters = found.index.gate, found.index.counters
        self._committer = Committer(
            self._index,
            self.sync,
            segment_bytes=self._segment_bytes,
            allot_bytes=allot_bytes,
            chores=self._tidy,
            on_room=lambda: self.when_room(),
        )
        try:
            self._tidy()
        except OSError as error:
            if error.errno not in NO_SPACE:
                raise
            log.warning(
                "no space left for the journal, what is in it can be read folder=%s", self.directory
            )
        self._committer.service.start()

    def _tidy(self) -> None:
        """Delete the segments that are done with, and have one to write to. The one in use is
        replaced if it is larger than half of the size for segments, or there is too little room for
        another.
        """
        segment = self._committer.segment
        if segment is not None and segment.records and not segment.open_records:
            left = min(self._room()[0], self._disk.free_bytes(self.directory))
            is_half = segment.size > self._segment_bytes // 2
            if is_half or self.trouble is not None or left < self._segment_bytes:
                self._committer.close()  # an open file would keep its room
        self._index.tidy()
        if self._committer.segment is None and self.trouble is None:
            self._committer.roll()

    def append(
        self, payload: Bytes, *, ttl_s: float | None = None, timeout_s: float | None = WAIT_S
    ) -> int:
        """Store one record; return its id. When this returns it is as durable as the policy says.

        ``ttl_s``: noted with the record as the instant at which it expires.

        :raises JournalFull: the cap or the reserve does not allow it; nothing was stored.
        :raises JournalFull, JournalFailed: the disk takes nothing; nothing was stored.
        :raises JournalSlow: the disk did not answer in time, or takes nothing now; the record was
            accepted, and is stored as soon as the disk takes it. Or too much waits for the disk
            already; then the error says that nothing was stored.
        :raises JournalRecordTooLarge, JournalClosed: nothing was stored.
        """
        return self.append_many((payload,), ttl_s=ttl_s, timeout_s=timeout_s).start

    def append_many(
        self,
        payloads: Iterable[Bytes],
        *,
        ttl_s: float | None = None,
        timeout_s: float | None = WAIT_S,
    ) -> range:
        """Store several records, one after the other, and return their ids. Together they must fit
        into a segment. All are accepted, or none; after a crash before this returns, only the first
        few may be stored. Raises as :meth:`append`.
        """
        self._refuse_if_closed()
        self._refuse_if_claimed()
        require(timeout("timeout_s", timeout_s), ttl_problem(ttl_s))
        entries = self._entries(payloads, ttl_s)
        if not entries:
            return range(0)
        waker = Waker()
        with self._gate:
            self._refuse_to_wait_for_myself()
            first_id, left_s = self._join(entries, timeout_s)
            end_id = first_id + len(entries)
            waiter = self._committer.wait_stored(end_id, waker.wake)
        waker.wait(left_s)
        waiter.require_done()
        return range(first_id, end_id)

    def append_soon(
        self,
        payload: Bytes,
        on_durable: OnDurable | None = None,
        *,
        ttl_s: float | None = None,
        timeout_s: float | None = WAIT_S,
    ) -> int:
        """Accept one record and return its id; the record is stored in the background, in the order
        of the calls.

        ``on_durable(id, error)`` is called with the id when the record is as durable as the policy
        says, or with ``None`` and an error if the journal was closed before. It is called on the
        writer's thread, and must neither take long nor call a method that waits for the writer
        (``append``, ``append_many``, ``flush``, ``close`` raise ``WouldDeadlock`` there).

        Waits only while 16 MiB are on their way to the disk.

        :raises JournalFull, JournalFailed: as :meth:`append`; nothing was stored.
        :raises JournalSlow: there was no room in time; nothing was stored.
        :raises JournalRecordTooLarge, JournalClosed: nothing was stored.
        """
        require(timeout("timeout_s", timeout_s), ttl_problem(ttl_s))
        self._refuse_if_closed()
        self._refuse_if_claimed()
        return self.accept(payload, on_durable, ttl_s=ttl_s, timeout_s=timeout_s)

    def accept(
        self,
        payload: Bytes,
        on_durable: OnDurable | None,
        *,
        ttl_s: float | None,
        timeout_s: float | None,
    ) -> int:
        """As :meth:`append_soon`, for a producer that has claimed the journal."""
        entries = self._entries((payload,), ttl_s)
        with self._gate:
            record_id, _ = self._join(entries, timeout_s)
            if on_durable is not None:
                self._committer.callbacks.append((record_id, on_durable))
        return record_id

    def _entries(self, payloads: Iterable[Bytes], ttl_s: float | None) -> list[Entry]:
        plain = [one if type(one) is bytes else _copied(one) for one in payloads]
        if ttl_s is None:
            return plain
        expires_us = microseconds(clock.calendar_s() + ttl_s)
        return [expiring(one, expires_us) for one in plain]

    def _join(self, entries: list[Entry], timeout_s: float | None) -> tuple[int, float | None]:
        """Accept records, after waiting for room if need be; return the first id, and what is left
        of the time. Called under the gate.
        """
        size, committer = size_of(entries), self._committer
        deadline: Deadline | None = None
        if size > self._segment_bytes - HEADER_BYTES:
            raise JournalRecordTooLarge(size=size + HEADER_BYTES, limit=self._segment_bytes)
        while True:
            if self._closed:
                raise self._closed_error()
            if (trouble := committer.trouble) is not None:
                raise with_cause(type(trouble)(str(trouble)), trouble)
            if not committer.is_crowded:
                break
            self._refuse_to_wait_for_myself()
            deadline = deadline or Deadline(timeout_s)
            if deadline.is_over:
                raise JournalSlow(
                    "too much waits for the journal's disk, which took too little in time; "
                    "nothing was stored"
                )
            committer.room.wait(deadline.remaining_s)
        room, why = self._room()
        if size > room:
            committer.kick()
            raise JournalFull(f"{size} more bytes were to be stored, and {why}")
        left_s = timeout_s if deadline is None else deadline.remaining_s
        return committer.join(entries, size), left_s

    def _room(self) -> tuple[float, str]:
        """Return how many more bytes the cap and the reserve leave, and why no more."""
        waiting, room, why = self._committer.waiting_bytes + HEADER_BYTES, math.inf, ""
        if self._max_bytes is not None:
            taken = self._index.bytes_used + waiting
            room = self._max_bytes - taken
            why = (
                f"journal {str(self.directory)!r} takes {taken} bytes of the {self._max_bytes} it "
                "may; acknowledge what is done with, or raise max_bytes"
            )
        if self._reserve_bytes:
            with self._translated("looked at"):
                free = self._disk.free_bytes(self.directory)
            if (left := free - waiting - self._reserve_bytes) < room:
                kept = f"of which {self._reserve_bytes} are not for the journal"
                room, why = left, f"{free} bytes are free on the disk, {kept}"
        return room, why

    def flush(self, timeout_s: float | None = WAIT_S) -> None:
        """Wait until all accepted records and all acknowledgements are on the disk, whatever the
        policy.

        :raises JournalFailed: this sync failed, or one since the last flush did.
        :raises JournalSlow: the disk did not answer in time, or takes nothing.
        """
        self._refuse_if_closed()
        require(timeout("timeout_s", timeout_s))
        self.await_stored(None, timeout_s=timeout_s)
        with self._translated("saved"):
            self._index.save()

    def await_stored(self, end_id: int | None, *, timeout_s: float | None) -> None:
        """Wait until all records before ``end_id`` are stored (``None``: all present records, which
        are also forced out). Raises as :meth:`append` does after acceptance.
        """
        waker = Waker()
        with self._gate:
            self._refuse_to_wait_for_myself()
            up_to = self._committer.next_id if end_id is None else end_id
            waiter = self._committer.wait_stored(up_to, waker.wake, is_flush=end_id is None)
        waker.wait(timeout_s)
        waiter.require_done()

    async def aawait_stored(self, end_id: int, *, timeout_s: float | None) -> None:
        """As :meth:`await_stored`, for a task."""
        waker = TaskWaker()
        with self._gate:
            waiter = self._committer.wait_stored(end_id, waker.wake)
        if not waiter.is_done:
            await waker.wait(timeout_s)
        waiter.require_done()

    def read(
        self, after_id: int = 0, *, max_items: int = 1000, max_bytes: int = 1 << 20
    ) -> list[JournalRecord]:
        """Return unacknowledged records after ``after_id``, in order: as many as the limits allow,
        and at least one if there is any. Expired records are included; the caller decides about
        them. While the disk takes nothing, records that wait for the disk are included as well.

        :raises JournalFailed: the file system failed. Damaged records do not raise; they are
            skipped, see :attr:`damages`.
        """
        self._refuse_if_closed()
        stored = self.stored_id
        with self._translated("read"):
            raws = self._index.read(after_id, max_items=max_items, max_bytes=max_bytes)
        if raws or self.trouble is None:
            return [record_of(raw) for raw in raws]
        return self.unwritten(after_id, stored, max_items=max_items, max_bytes=max_bytes)

    def unwritten(
        self, after_id: int, stored_id: int, *, max_items: int = _ALL, max_bytes: int = _ALL
    ) -> list[JournalRecord]:
        """Return the records after ``after_id`` that wait for the disk, in order; none if more
        records than those up to ``stored_id`` are stored by now.
        """
        found: list[JournalRecord] = []
        now_us, size = microseconds(clock.calendar_s()), 0
        with self._gate:
            if self.stored_id != stored_id:
                return found
            for batch in list(self._committer.batches):
                begin = max(after_id + 1, self._index.next_id, batch.first_id)
                for number in range(begin, batch.end_id):
                    if number in self._committer.done:
                        continue
                    entry = batch.entries[number - batch.first_id]
                    size += size_of((entry,))
                    if len(found) >= max_items or (found and size > max_bytes):
                        return found
                    flags = EXPIRES if isinstance(entry, Expiring) else 0
                    found.append(record_of((number, now_us, flags, entry)))
        return found

    @property
    def trouble(self) -> LeaderqError | None:
        """Why the disk takes nothing at present; ``None`` if it takes records."""
        return self._committer.trouble

    @property
    def stored_id(self) -> int:
        """The last id whose record is stored, or need not be stored."""
        return self._index.next_id - 1

    def depth_behind(self, record_id: int) -> tuple[int, int]:
        """How many records with ids above ``record_id`` are stored and not done with, and how many
        are on their way to the disk.
        """
        committer = self._committer
        with self._gate:
            begin = max(self._index.next_id, record_id + 1)
            coming = max(0, committer.next_id - begin)
            done = sum(number >= begin for number in committer.done) if coming else 0
            return self._index.depth_behind(record_id), coming - done

    def name_codec(self, name: str) -> bool:
        """Write this codec's name into segments begun from now on; return whether unread segments
        name another codec.
        """
        self._committer.codec = tag = codec_tag(name)
        with self._gate:
            return any(
                one.open_records and one.codec not in (0, tag) for one in self._index.segments
            )

    def ack(self, record_id: int) -> bool:
        """Mark a record as done with; return ``False`` if it was marked before.

        :raises ValueError: no record has had this id yet.
        """
        return self.ack_many((record_id,)) == 1

    def ack_many(self, record_ids: Iterable[int]) -> int:
        """Mark records as done with, in any order; return how many were not marked before.

        :raises ValueError: no record has had one of these ids yet; none was marked.
        """
        self._refuse_if_closed()
        wanted = list(record_ids)
        with self._gate:
            following = self._committer.next_id
            last = max(wanted, default=0)
            if last >= following:
                raise ValueError(f"no record has had id {last} yet; the next will be {following}")
            stored = self._index.next_id
            newly, segments = self._index.mark(one for one in wanted if one < stored)
            self._look_at(segments)
            return newly + self._mark_unwritten(one for one in wanted if one >= stored)

    def ack_to(self, record_id: int) -> int:
        """Mark all records up to this one as done with; return how many were not marked before."""
        self._refuse_if_closed()
        newly = 0
        with self._gate:
            for segment in self._index.segments:
                if segment.records and segment.first_id <= record_id:
                    newly += segment.mark(segment.first_id, min(record_id, segment.last_id))
            self._look_at(self._index.segments)
            end = min(record_id + 1, self._committer.next_id)
            return newly + self._mark_unwritten(range(self._index.next_id, end))

    def _mark_unwritten(self, record_ids: Iterable[int]) -> int:
        """Note that these are done with; they are marked when they are written, if they are."""
        done = self._committer.done
        before = len(done)
        done.update(record_ids)
        return len(done) - before

    def _look_at(self, segments: Iterable[Segment]) -> None:
        """Have those of these segments deleted whose records are all marked. The segment in use
        waits for the next chores, unless the disk takes nothing. Called under the gate.
        """
        is_stuck = self.trouble is not None
        if any(one.is_done or (is_stuck and not one.open_records) for one in segments):
            self._committer.kick()

    @property
    def depth(self) -> int:
        """How many records are not done with."""
        return self._index.depth

    @property
    def bytes_used(self) -> int:
        """How many bytes the segment files take, including records that are done with and not yet
        deleted.
        """
        return self._index.bytes_used

    @property
    def room_bytes(self) -> int | None:
        """How many more bytes the limits leave at present; 0 if the journal is closed or the disk
        takes nothing; ``None`` if there is neither a cap nor a reserve.
        """
        if not self._is_open or self.trouble is not None:
            return 0
        with self._gate:
            room = self._room()[0]
        return None if room == math.inf else max(0, int(room))

    @property
    def next_id(self) -> int:
        """The id that the next record gets."""
        return self._committer.next_id

    @property
    def damages(self) -> Sequence[Damage]:
        """All damages found so far, at opening and since."""
        return tuple(self._index.damages)

    def is_entered(self) -> bool:
        """Return whether this call interrupts its own thread inside the journal."""
        return bool(self._gate._is_owned())  # type: ignore[attr-defined]

    @property
    def is_writer(self) -> bool:
        """Whether this is the writer's thread, which calls ``on_durable``."""
        return self._committer.service.is_current

    def close(self, timeout_s: float | None = WAIT_S) -> None:
        """Write waiting records, force them out, save the acknowledgements, and let others open the
        directory. May be called twice.

        :raises JournalSlow: the disk did not take the records in time; the directory stays locked.
        :raises JournalFailed, JournalFull: a sync failed (see :meth:`flush`), or the disk takes
            nothing and the records accepted last are lost; the journal is closed nevertheless.
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
            if not self._committer.service.stop(timeout_s):
                raise JournalSlow(
                    f"journal {str(self.directory)!r} could not write what waits within "
                    f"{timeout_s} s"
                )
            error = self._committer.trouble
            left = self._committer.end(error or self._closed_error())
            try:
                with self._translated("saved"):
                    try:
                        self._committer.flush()
                    except JournalFailed as exc:
                        error = error or exc
                    self._index.tidy()
                    self._index.save(clean=error is None)
            finally:
                self._committer.close()
                self._index.close()
                self._lock.release()
            if left:
                log.error("journal closed, records not written count=%d error=%s", left, error)
            if error is not None:
                raise error

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def _is_ours(self) -> bool:
        return self._lock.is_held

    @property
    def _is_open(self) -> bool:
        return self._lock.is_held and not self._closed

    def _refuse_if_closed(self) -> None:
        """Raise an error if the journal is closed. Every public method calls this first: a forked
        child may never get the lock, and this thread may hold it itself.
        """
        if not self._is_open:
            raise self._closed_error()
        self._refuse_reentry()

    def claim(self) -> None:
        """Let the journal accept records of one producer only, until :meth:`release`.

        :raises ConfigurationError: another producer uses the journal.
        """
        self._refuse_if_claimed()
        self._is_claimed = True

    def release(self) -> None:
        self._is_claimed = False

    def _refuse_if_claimed(self) -> None:
        if self._is_claimed:
            raise ConfigurationError(
                f"journal {str(self.directory)!r} is a producer's at present; send through that, or"
                " use another journal"
            )

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
        if self.is_writer or self._closing._is_owned():  # type: ignore[attr-defined]
            raise WouldDeadlock(
                "a callback of the journal was about to wait for the thread that calls it; have "
                "another thread do that"
            )

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        """Raise ``JournalFailed`` in place of ``OSError``, with the journal's name."""
        try:
            yield
        except OSError as exc:
            raise JournalFailed(
                f"journal {str(self.directory)!r} could not be {done}: {exc}"
            ) from exc


def ttl_problem(ttl_s: object) -> Problem:
    """What is wrong with a time to live: of a producer, a request, a record."""
    is_fit = ttl_s is None or (is_number(ttl_s) and is_time(ttl_s))
    return wanted("ttl_s", ttl_s, is_fit, "seconds, or None")


def _copied(payload: Bytes) -> bytes:
    found = bytes_of(payload)
    require(wanted("payload", payload, found is not None, "bytes"))
    return found or b""
