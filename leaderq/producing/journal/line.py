"""The line of a journal: records that were accepted, in the order of their ids, written in groups.

A record has its id as soon as it joins the line, under the journal's gate. One thread writes the
head of the line; what arrives meanwhile is written together by the next write. The head never
fails. If the disk refuses it, it stays where it is, and is tried again: half as much at once, until
a lone record is refused too. Then the journal *takes nothing*: nobody may join while something is
in the line, whoever waits is told, the log says it once, and the head is tried four times a second.
What was acknowledged meanwhile need not be written. So ids are dense, and nothing is ever stored
before what was accepted before it.

An interrupt of the thread, between any two steps, changes nothing: which records are stored is one
value, the extent of the segment, so whatever was under way is written over.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from leaderq import clock as clocks
from leaderq.arguments import require_finished
from leaderq.errors import JournalSlow, LeaderqError, told, with_cause
from leaderq.producing.journal.records import Entry, size_of
from leaderq.producing.journal.segments import HEADER_BYTES, JournalParts
from leaderq.producing.journal.store import RecordStore
from leaderq.threads import Service, Waker, primitives

log = logging.getLogger("leaderq.producing.journal")

GROUP_BYTES: Final = 1 << 20
"""A batch that others join gets no larger than this, or than a segment."""
WAITING_BYTES: Final = 16 << 20
"""Callers that would make more wait for the disk wait until there is room."""
CHORES_EVERY_S: Final = 0.5
AGAIN_S: Final = 0.25
_WHOLE: Final = 1 << 62
QUIET_S: Final = 10.0

Bytes = bytes | bytearray | memoryview
OnDurable = Callable[["int | None", "Exception | None"], object]
"""Called with the id of a record once it is as durable as the policy says, or at the close with
``None`` and the error for which it is not stored."""
Action = Callable[[], None]


@dataclass(slots=True, eq=False)
class CommitBatch:
    """Records that are written together. Which of them are stored is the index's to say."""

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
    """One who waits until all before ``end_id`` is stored, and with ``is_flush`` forced out."""

    end_id: int
    is_flush: bool
    waker: Waker = field(default_factory=Waker)
    is_done: bool = False
    error: LeaderqError | None = None


class Committer:
    """The line, and the thread that writes its head. See the module. Called under the gate, except
    :meth:`leave`.
    """

    def __init__(self, parts: JournalParts, *, group_bytes: int = GROUP_BYTES) -> None:
        self._gate, self._index = parts.gate, parts.index
        self.room = primitives.Condition(parts.gate)
        """Notified when fewer bytes wait, see :attr:`is_crowded`."""
        self.waiting_bytes = 0
        self.trouble: LeaderqError | None = None
        """Why the disk refuses the head of the line at present."""
        self.done: set[int] = set()
        """Records that were acknowledged before they were written."""
        self.batches: deque[CommitBatch] = deque()
        self._group_bytes = group_bytes
        self._callbacks: deque[tuple[int, OnDurable]] = deque()
        self._waiters: list[LineWaiter] = []
        self._most = _WHOLE
        self._again_at = self._chores_at = self._upkeep_at = 0.0
        self._kicked = self._upkeep_wanted = self._is_said = False
        self._service: Service | None = None
        self._quiet_until_s: dict[str, float] = {}
        self._struck: OnDurable | None = None

    def start(
        self,
        store: RecordStore,
        *,
        chores: Action,
        upkeep: Action,
        upkeep_every_s: float,
        on_stored: Callable[[set[int]], object],
        on_trouble: Action,
        on_again: Action,
    ) -> None:
        """Start the thread. Between two batches it does ``chores`` every half second and when
        kicked, ``upkeep`` every so many seconds and when wanted. ``on_stored`` is called with
        records that were acknowledged before they were stored, ``on_trouble`` under the gate when
        the disk takes nothing, ``on_again`` when it takes records again.
        """
        self._store, self._on_stored = store, on_stored
        self._on_trouble, self._on_again = on_trouble, on_again
        self._chores, self._upkeep, self._upkeep_every_s = chores, upkeep, upkeep_every_s
        self._chores_at = clocks.awake_s() + CHORES_EVERY_S
        self._upkeep_at = clocks.awake_s() + upkeep_every_s
        # Struck, it finds the line as it was.
        self._service = Service.lasting("leaderq-journal", self._round, on_struck=lambda: None)
        self._service.start()

    @property
    def next_id(self) -> int:
        """The id that the next record gets."""
        return self.batches[-1].end_id if self.batches else self._index.next_id

    def join(self, entry: Entry, size: int) -> int:
        """Add a record at the end of the line; return its id. It is accepted by one statement."""
        self.waiting_bytes += size  # too high after an interrupt, until the line is empty
        batch = self.batches[-1] if self.batches else None
        if batch is None or batch.is_taken or batch.size + size > self._group_bytes:
            return self.line_up([entry], size)
        batch.size += size
        batch.entries.append(entry)
        return batch.first_id + len(batch.entries) - 1

    def line_up(self, entries: list[Entry], size: int) -> int:
        """Add records that are written together, if the disk has room; return the first id."""
        first_id = self.next_id
        self.batches.append(CommitBatch(first_id, entries, HEADER_BYTES + size))
        self.wake()
        return first_id

    def call_when_stored(self, record_id: int, callback: OnDurable) -> None:
        self._callbacks.append((record_id, callback))

    def wait_stored(self, end_id: int, *, is_flush: bool = False) -> LineWaiter:
        self._waiters.append(waiter := LineWaiter(end_id, is_flush))
        if is_flush:  # the thread was woken for a record when that joined
            self.wake()
        return waiter

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
            self.wake()

    def try_again(self) -> None:
        """There is room: the head need not wait for its next try."""
        self._again_at = 0.0

    def want_upkeep(self) -> None:
        self._upkeep_wanted = True
        self.wake()

    def wake(self) -> None:
        if self._service is not None:
            self._service.wake()

    def leave(self, timeout_s: float | None) -> bool:
        """Write the line, as far as the disk takes it, and end the thread; return whether it has
        ended in time."""
        return self._service is None or self._service.stop(timeout_s)

    def give_up(self, error: LeaderqError) -> int:
        """After the end: tell whoever waits that the rest is not stored; return how many."""
        self._tell()
        left = self.next_id - self._index.next_id
        left -= len(self.done)
        while self._callbacks:
            self._call(self._callbacks[0][1], None, error)
            self._callbacks.popleft()
        for waiter in self._waiters:
            waiter.error, waiter.is_done = error, True
            waiter.waker.wake()
        return left

    def _round(self, service: Service) -> bool:
        """Wait until something is due, and do it; return whether to go on."""
        is_ending = service.is_stopping
        is_due = self._kicked or self._upkeep_wanted or self._is_head_due or self._has_news
        if not is_due and not is_ending:
            until = min(self._chores_at, self._upkeep_at)
            if self.batches:
                until = min(until, self._again_at)
            service.wait(until - clocks.awake_s())
        if self.batches and (is_ending or self._is_head_due):
            self._write_head()
        elif is_ending:
            self._tell()
            return False
        self._tell()
        self._do_due()
        return not (is_ending and self.trouble is not None)

    @property
    def _is_head_due(self) -> bool:
        return bool(self.batches) and (not self._again_at or clocks.awake_s() >= self._again_at)

    def _do_due(self) -> None:
        if self._upkeep_wanted or clocks.awake_s() >= self._upkeep_at:
            self._upkeep_wanted = False
            self._contained("upkeep", self._upkeep)
            self._upkeep_at = clocks.awake_s() + self._upkeep_every_s
        if self._kicked or clocks.awake_s() >= self._chores_at:
            self._kicked = False
            self._contained("chores", self._chores)
            self._chores_at = clocks.awake_s() + CHORES_EVERY_S

    def _write_head(self) -> None:
        with self._gate:
            if (head := self._head()) is None:
                return
            head.is_taken = True
            skip = max(0, self._index.next_id - head.first_id)
            entries = head.entries
            if skip or len(entries) > self._most:
                entries = entries[skip : skip + self._most]
        is_whole = entries is head.entries
        size = head.size if is_whole else HEADER_BYTES + sum(map(size_of, entries))
        try:
            self._store.write(head.first_id + skip, entries, size)
        except Exception as error:  # noqa: BLE001 - any failure: the head stays, and this goes on
            self._refused(error, len(entries))
        else:
            self._stored(head)

    def _head(self) -> CommitBatch | None:
        """Under the gate: the first batch of which something is to be written."""
        if self.trouble is not None:
            self._skip_done()
        while self.batches and self.batches[0].end_id <= self._index.next_id:
            self._dismiss()
        if not self.batches:
            self.trouble = None
            return None
        return self.batches[0]

    def _stored(self, head: CommitBatch) -> None:
        with self._gate:
            if head.end_id <= self._index.next_id:
                self._dismiss()
            if not self.is_crowded:
                self.room.notify_all()
        self._most = min(self._most * 2, _WHOLE)
        self.trouble, self._again_at = None, 0.0
        if self._is_said:
            self._is_said = False
            log.info("journal takes records again folder=%s", self._store.directory)
            self._on_again()

    def _note_done(self) -> None:
        """Mark what was acknowledged before it was stored."""
        with self._gate:
            stored = {one for one in self.done if one < self._index.next_id}
            self._on_stored(stored)
            self.done -= stored

    def _dismiss(self) -> None:
        """The first batch is stored, or done with."""
        batch = self.batches.popleft()
        size = batch.size - HEADER_BYTES
        self.waiting_bytes = max(0, self.waiting_bytes - size) if self.batches else 0

    def _skip_done(self) -> None:
        """The disk is full: what is done with already need not be written."""
        index, end = self._index, self._index.next_id
        while end in self.done:
            end += 1
        if end > index.next_id:
            index.floor = end

    def _refused(self, error: Exception, count: int) -> None:
        if count > 1:  # perhaps a part fits
            self._most = count // 2
            return
        trouble = self._store.trouble(error)
        if not self._is_said:
            self._is_said = True
            log.error(
                "journal takes nothing, what it has accepted is kept and tried again folder=%s "
                "error=%s",
                self._store.directory,
                told(error),
                exc_info=None if isinstance(error, OSError | LeaderqError) else error,
            )
        self._again_at = clocks.awake_s() + AGAIN_S
        with self._gate:
            self.trouble = trouble
            self._on_trouble()
        self._upkeep_wanted = True  # the segment in use may be done with

    @property
    def _has_news(self) -> bool:
        return any(one.end_id <= self._index.next_id for one in self._waiters)

    def _tell(self) -> None:
        """Tell those who wait, without the gate: callbacks may call the journal."""
        if self.done:
            self._note_done()
        stored = self._index.next_id
        while self._callbacks and self._callbacks[0][0] < stored:
            self._call(self._callbacks[0][1], self._callbacks[0][0], None)
            self._callbacks.popleft()
        for waiter in list(self._waiters):
            if waiter.end_id <= stored:
                if waiter.is_flush:
                    try:
                        self._store.flush()
                    except LeaderqError as error:
                        waiter.error = error
            elif (trouble := self.trouble) is not None:
                waiter.error = slow_because(trouble)
            else:
                continue
            waiter.is_done = True
            waiter.waker.wake()
            self._waiters.remove(waiter)

    def _call(self, callback: OnDurable, record_id: int | None, error: LeaderqError | None) -> None:
        try:
            require_finished(callback(record_id, error), "on_durable")
        except BaseException as exc:  # also SystemExit: the writer's thread must go on
            # It may be an interrupt of this thread: then it is called again.
            if not isinstance(exc, Exception) and self._struck is not callback:
                self._struck = callback
                raise
            log.exception("callback for a stored record failed")

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


def slow_because(trouble: LeaderqError) -> JournalSlow:
    """What those are told whose records are in the line while the disk takes nothing."""
    text = "the record was accepted, and is stored as soon as the disk takes it: do not append it"
    return with_cause(JournalSlow(f"{text} again. At present: {trouble}"), trouble)
