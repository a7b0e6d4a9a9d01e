"""Everything that the threads of a buffered producer share: memory, positions in the journal, and
what was lost, under one lock that only this module takes.

It adds the lock, the state and the waits to the sequence of requests
(:mod:`~leaderq.producing.sequence`). Who is interrupted between two statements, by Ctrl-C say,
leaves the buffer *dirty*: the next one that takes the lock works everything out again.

Who is authoritative: the sink about what is confirmed; the journal about what survives the process.
Callers put requests in (:mod:`~leaderq.producing.admission`), workers and the sender take them from
memory, the journal's reader moves them from the journal into memory, and whoever learns the end of
one tells it to :meth:`RequestBuffer.settle`. No file is written under the lock, and no listener
told. The journal's gate may be taken under it, never the other way round.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

from leaderq import clock
from leaderq.errors import (
    BufferFull,
    JournalSlow,
    LeaderqError,
    ProducerClosed,
    RequestTooLarge,
    WouldDeadlock,
)
from leaderq.producing.account import (
    BufferState,
    LossReason,
    Settlement,
    next_level,
)
from leaderq.producing.listeners import OnDurable
from leaderq.producing.memory import BufferedRequest, RequestStep
from leaderq.producing.options import ProducerOptions
from leaderq.producing.sequence import LineEnd, RequestSequence, is_stored
from leaderq.producing.spill import Piece, Spill
from leaderq.threads import Waiter, WaitingLine, Waker, primitives
from leaderq.timeouts import Deadline

log = logging.getLogger(__name__)

T = TypeVar("T")
Gone = tuple[BufferedRequest, LossReason, "BaseException | None"]
_READ_ITEMS = 1000
_LOOK_S = 0.02
_LOSSES = 20
_TAKEN_ALONG = 4  # a quarter of the memory is left for three quarters to be written
_HELD_S = 0.005


class ReadOrder(NamedTuple):
    """A range of the journal to read: behind which id and up to which, and how much memory has room
    for.
    """

    after_id: int
    last_id: int
    items: int
    bytes: int


class RequestBuffer(RequestSequence):
    """See the module."""

    def __init__(self, options: ProducerOptions, spill: Spill | None) -> None:
        super().__init__(options, spill)
        self._marks = options.marks
        # Reentrant only so that a call which interrupts its own thread can be refused.
        self._lock = primitives.RLock()
        self._is_dirty = False
        self._to_send, self._to_read = Waker(), Waker()
        self._to_process = [Waker() for _ in range(options.lanes)]
        self._awaiting_end: list[Waker] = []
        self.awaiting_room: WaitingLine[Callable[[], object]] = WaitingLine(_have_look)
        """Those who wait for room. What room there is depends on the state, the disk and the
        policy, so the first is only woken, and looks for itself."""
        self._wanted = 0
        """How many requests ready wake the sender; 0: it does not wait."""
        self.is_closing = False
        self.is_stopped = False
        """Whether all threads are to end."""
        self._level = self._said = BufferState.DIRECT
        self._is_refused = False  # whether the journal took nothing when it was asked last
        self.spilled = 0
        """How many times memory has come to the high mark."""
        if spill is not None:
            spill.journal.when_room = self._wake_first
        if self._recovered:
            self._level = self._said = BufferState.DRAINING

    # -- the lock ----------------------------------------------------------------------------------

    def look(self, at: Callable[[RequestBuffer], T]) -> T:
        """Return what ``at`` sees of the buffer at one moment."""
        self.refuse_reentry()
        with self._lock:
            self._enter()
            seen = at(self)
            self._is_dirty = False
        return seen

    def _enter(self) -> None:
        """Under the lock: first finish what somebody was interrupted in. Whoever leaves without an
        interrupt says that the buffer is not dirty.
        """
        if self._is_dirty:
            self._rebuild()
        self._is_dirty = True

    def _rebuild(self, step: RequestStep | None = None, lane: int | None = None) -> None:
        self.rebuild(step, lane)
        self.judge()
        self._to_send.wake()
        for waker in self._to_process:
            waker.wake()

    def begin_again(self, step: RequestStep, lane: int | None = None) -> None:
        """The thread that had these in hand was interrupted: they wait once more."""
        with self._lock:
            self._is_dirty = True
            self._rebuild(step, lane)
            self._is_dirty = False
        self._tell()

    def refuse_reentry(self) -> None:
        """Return if this call does not interrupt its own thread in here.

        :raises WouldDeadlock: it does, from a finalizer or a signal handler.
        """
        is_entered = self._lock._is_owned()  # type: ignore[attr-defined]
        if is_entered or (self.spill is not None and self.spill.journal.is_entered()):
            raise WouldDeadlock(
                "a finalizer or a signal handler that interrupted this thread inside the producer "
                "was about to wait for it; nothing was accepted. Have another thread send"
            )

    # -- for the sender, the workers, the reader ---------------------------------------------------

    def take_batch(self, until_s: float | None = None) -> list[BufferedRequest]:
        """Return the next requests for the sink, in order, after waiting for enough of them, or for
        the linger time. ``[]``: stop, or it is ``until_s``."""
        while not self.is_stopped:
            with self._lock:
                self._enter()
                wait_s = self._linger_s()
                taken = self._taken() if wait_s == 0.0 else None
                self._is_dirty = False
            if taken is None:
                if until_s is not None:
                    left_s = until_s - clock.now_s()
                    if left_s <= 0:
                        return []
                    wait_s = left_s if wait_s is None else min(wait_s, left_s)
                self._to_send.wait(wait_s)
                continue
            batch, expired = taken
            if expired:
                self.settle((), expired)
            if batch:
                return batch
        return []

    def _linger_s(self) -> float | None:
        """How long to wait for a batch; ``None``: until it is there."""
        memory, options = self.memory, self._options
        self._wanted = 0
        if not memory.ready:
            self._wanted = 1
            return None
        is_enough = (
            len(memory.ready) >= options.batch_items or memory.ready_bytes >= options.batch_bytes
        )
        left_s = options.linger_s - (clock.now_s() - memory.ready[0].since_s)
        # Once memory is full nothing more will gather, and somebody may be waiting for room.
        if is_enough or left_s <= 0 or self.is_closing or self._level is not BufferState.DIRECT:
            return 0.0
        self._wanted = options.batch_items
        return left_s

    def _taken(self) -> tuple[list[BufferedRequest], list[Gone]]:
        batch: list[BufferedRequest] = []
        expired: list[Gone] = []
        memory, most = self.memory, self._options.batch_bytes
        now, size, ready = clock.now_s(), 0, memory.ready
        while ready and len(batch) < self._options.batch_items:
            one = ready[0]
            if batch and size + one.size > most:
                break
            memory.next_ready()
            if one.deadline is not None and one.is_expired(now):
                expired.append((one, LossReason.EXPIRED, None))
            else:
                batch.append(one)
                size += one.size
        return batch, expired

    def take_for_processing(self, worker: int, limit: int) -> list[BufferedRequest]:
        """Return the next requests for a worker, in order. ``[]``: stop."""
        line = self.memory.to_process[worker]
        while not self.is_stopped:
            with self._lock:
                self._enter()
                taken = [line.popleft() for _ in range(min(limit, len(line)))]
                for one in taken:
                    one.step = RequestStep.PROCESSING
                self._is_dirty = False
            if taken:
                return taken
            self._to_process[worker].wait()
        return []

    def processed(self, requests: Iterable[BufferedRequest]) -> None:
        with self._lock:
            self._enter()
            for one in requests:
                if one.seq in self.memory.unsettled and one.step is RequestStep.PROCESSING:
                    self.memory.make_ready(one)
            self._wake_sender()
            self._is_dirty = False

    def settle(self, confirmed: Iterable[BufferedRequest], gone: Iterable[Gone] = ()) -> None:
        """The former are acknowledged by the sink, the latter lost; settled ones are
        passed over.
        """
        with self._lock:
            self._enter()
            unsettled = self.memory.unsettled
            self._settling = [one for one in confirmed if one.seq in unsettled]
            self._finish()
            for one, reason, error in gone:
                if one.seq in unsettled:
                    self.give_up(one, reason, error)
            self.judge()
            self._is_dirty = False
        self._tell()

    def next_order(self) -> ReadOrder | None:
        """Return the next range to read, as soon as there is one. ``None``: stop."""
        spill = self.spill
        while not self.is_stopped and spill is not None:
            with self._lock:
                self._enter()
                self._look_for_room()
                order = self._order(spill) if self._may_read else None
                wait_s = None if self.is_read_up and not self._is_refused else _LOOK_S
                self._is_dirty = False
            if order is not None:
                return order
            self._to_read.wait(wait_s)
        return None

    def _order(self, spill: Spill) -> ReadOrder | None:
        journal, marks, memory = spill.journal, self._marks, self.memory
        last_id = journal.stored_id if journal.trouble is None else self._last_id
        if last_id <= self._read_to:
            return None
        items = max(1, int(marks.high * marks.max_items) - len(memory))
        size = max(1, int(marks.high * marks.max_bytes) - memory.bytes)
        return ReadOrder(self._read_to, last_id, min(items, _READ_ITEMS), size)

    def fill(self, piece: Piece) -> None:
        """Take requests that were read into memory, and move the position behind them."""
        with self._lock:
            self._enter()
            self._take_in(piece)
            self.judge()
            self._is_dirty = False
        self._tell()

    def _take_in(self, piece: Piece) -> None:
        before = len(self._undecodable)
        self._undecodable.update(piece.undecodable)
        self._note_passed(LossReason.UNDECODABLE, len(self._undecodable) - before)
        self._note_passed(LossReason.CORRUPT, self.corrupt - self._corrupt_told)
        self._corrupt_told = self.corrupt
        for one in piece.requests:
            number = one.journal_id
            if number is None or number <= self._read_to:
                continue  # somebody was interrupted who had read it before
            one.waiter = self._waiters.get(number)
            self._push(one)
            self._waiters.pop(number, None)
        self._read_to = max(self._read_to, piece.up_to)

    # -- the end -----------------------------------------------------------------------------------

    def close_entry(self) -> None:
        with self._lock:
            self.is_closing = True
            self.awaiting_room.close(self._closed)
            self._to_send.wake()

    def stop(self) -> None:
        self.close_entry()
        with self._lock:
            self.is_stopped = True
            for waker in (self._to_send, self._to_read, *self._to_process, *self._awaiting_end):
                waker.wake()

    def write_down(self) -> bool:
        """After :meth:`stop`: put the rest into the journal, in order; return whether it has taken
        all."""
        with self._lock:
            self._enter()
            self._is_refused = False
            is_done = self.spill is None
            with suppress(JournalSlow):
                is_done = is_done or self._write_down()
            self._is_dirty = False
        return is_done

    def give_up_unwritten(self) -> None:
        """At the end: drop the requests that the journal does not have, and will not get."""
        spill = self.spill
        with self._lock:
            self._enter()
            stored_id = -1 if spill is None else spill.journal.stored_id
            left = [one for one in self.memory if not is_stored(one, stored_id)]
            reason, error = LossReason.CLOSED, None
            if spill is not None:
                reason, error = LossReason.JOURNAL, spill.last_error
                for one in spill.unwritten(max(self._read_to, stored_id)):
                    one.waiter = self._waiters.pop(one.journal_id or 0, None)
                    left.append(one)
            for one in left:
                if one.is_unwritable and spill is not None:
                    spill.serialized(one)
                    error = spill.last_error
                self.give_up(one, reason, error)
            self._is_dirty = False
        self._tell()

    def end(self) -> list[tuple[int | None, primitives.Future[Any]]]:
        """The journal is closed: return the ids and futures of requests that are in it. From now on
        the account stands still."""
        with self._lock:
            self._enter()
            self._final = self.unread, self.corrupt
            waiters: list[tuple[int | None, primitives.Future[Any]]] = [*self._waiters.items()]
            waiters += [(one.journal_id, one.waiter) for one in self.memory if one.waiter]
            self._is_dirty = False
        return waiters

    @property
    def line_end(self) -> LineEnd:
        """Where the sequence of requests ends now."""
        with self._lock:
            self._enter()
            end = LineEnd(self.memory.pushed, self._last_id)
            self._is_dirty = False
        return end

    def wait_settled(self, timeout_s: float | None, end: LineEnd | None = None) -> bool:
        """Wait until everything up to ``end`` (``None``: all) is settled; return whether that came
        in time."""
        deadline, waker = Deadline(timeout_s), Waker()
        with self._lock:
            self._awaiting_end.append(waker)
        try:
            while True:
                with self._lock:
                    self._enter()
                    is_over = not self.pending if end is None else self._is_passed(end)
                    self._is_dirty = False
                if is_over:
                    return True
                if self.is_stopped or deadline.is_over:
                    return False
                waker.wait(deadline.remaining_s)
        finally:
            with self._lock:
                self._awaiting_end.remove(waker)

    def settlement(self, end: LineEnd | None = None) -> Settlement:
        """Return what became of the requests up to ``end`` (``None``: all) and of lost ones."""
        with self._lock:
            self._enter()
            settlement = self.settled(end)
            self._is_dirty = False
        return settlement

    # -- the way in --------------------------------------------------------------------------------

    def take_at_once(self, one: BufferedRequest, on_durable: OnDurable | None) -> bool:
        """Take a request if there is room and nobody waits for it, at a third of the cost of an
        admission; raises as an admission does, except ``BufferFull``.
        """
        self.refuse_reentry()
        with self._lock:
            self._enter()
            try:
                is_taken = not self.awaiting_room and self.place(one, on_durable)
            except JournalSlow:
                is_taken = False
            except LeaderqError:
                self._is_dirty = False
                raise
            self._is_dirty = False
        self._tell()
        return is_taken

    def admit(self, attempt: Callable[[], float | None]) -> float | None:
        """Make one attempt of an admission, under the lock, and return its result.

        :raises WouldDeadlock: it interrupts its own thread in here.
        """
        self.refuse_reentry()
        try:
            with self._lock:
                self._enter()
                try:
                    result = attempt()
                except LeaderqError:
                    self._is_dirty = False
                    raise
                self._is_dirty = False
                return result
        finally:
            self._tell()

    def leave_line(self, waiter: Waiter[Callable[[], object]]) -> None:
        with self._lock:
            self.awaiting_room.leave(waiter)

    def refuse(self, why: str) -> None:
        self.refuse_reentry()
        with self._lock:
            self.refused[why] += 1

    # -- under the lock ----------------------------------------------------------------------------

    def place(self, one: BufferedRequest, on_durable: OnDurable | None) -> bool:
        """Put it where the state says; return ``False`` if there is no room.

        :raises JournalSlow: at this moment too much waits for the disk.
        """
        memory, spill = self.memory, self.spill
        if self.is_closing:
            raise self._closed()
        items = len(memory)
        fits = self._marks.fits(items, memory.bytes, one.size)
        if spill is None:
            if not fits:
                return False
        elif self._level is not BufferState.DIRECT or not fits or not self.is_read_up:
            return self._place_in_journal(one, on_durable)
        elif spill.is_write_ahead and not (
            self._write_down() and self._join(one, one.data or b"", on_durable)
        ):
            return False
        self._push(one)
        if one.journal_id is not None:
            self._read_to, self._written = one.journal_id, one.seq
        if self._marks.is_high(items + 1, memory.bytes):
            self.judge()
        elif spill is not None and self._marks.is_near(items + 1, memory.bytes):
            # Each new request takes some of the oldest along, so that nobody has to wait for all of
            # them when spilling begins.
            with suppress(JournalSlow):
                self._write_down(_TAKEN_ALONG)
        return True

    def _place_in_journal(self, one: BufferedRequest, on_durable: OnDurable | None) -> bool:
        if self._level is BufferState.DIRECT:
            self._become(BufferState.SPILLING)
        if one.waiter is not None and len(self._waiters) >= self._options.max_waiters:
            self.refused["too many futures"] += 1
            raise BufferFull(
                f"{len(self._waiters)} futures wait for requests in the journal, the most that "
                "are kept (max_waiters)"
            )
        if not self._write_down() or not self._join(one, one.data or b"", on_durable):
            return False
        if one.waiter is not None and one.journal_id is not None:
            self._waiters[one.journal_id] = one.waiter
        self._wake_reader()
        return True

    def _join(self, one: BufferedRequest, data: bytes, on_durable: OnDurable | None) -> bool:
        """Append it to the journal; return ``False`` if that takes nothing, as the state then says.

        The id is noted before, so that after an interrupt the journal tells whether it has it.
        """
        spill = self.spill
        if spill is None:
            return True
        one.journal_id, number = self._last_id + 1, None
        try:
            number = spill.append(one, data, on_durable)
        except RequestTooLarge:
            self.refused["too large"] += 1
            one.journal_id = None
            raise
        except JournalSlow:
            one.journal_id = None
            raise
        one.journal_id = number
        self._last_id = number or self._last_id
        self._is_refused = number is None
        if number is None:
            self._tell_state()
            self._to_read.wake()  # it looks again when the journal takes more
        return number is not None

    def _write_down(self, most: int | None = None) -> bool:
        """Put all of memory into the journal too, in order, or ``most`` of the oldest: later
        requests go only there, and must stay behind. Return ``False`` if the journal takes nothing.

        A request that cannot be written any more (too large, or changed by its owner so that the
        codec refuses it) stays in memory only, and does not stop others.

        :raises JournalSlow: this must continue later.
        """
        memory, spill = self.memory, self.spill
        if spill is None or self._written >= memory.pushed:
            return True
        oldest = memory.oldest
        self._written = memory.pushed if oldest is None else max(self._written, oldest.seq - 1)
        until_s, count = clock.now_s() + _HELD_S, 0
        while self._written < memory.pushed:
            seq = self._written + 1
            one = memory.unsettled.get(seq)
            if one is not None and one.journal_id is None and not one.is_unwritable:
                if count == most:
                    return True
                if not self._copy(spill, one):
                    return False
                count += 1
            self._written = seq
            if most is None and clock.now_s() >= until_s and not self.is_stopped:
                raise JournalSlow("memory is on its way to the journal; the rest follows")
        return True

    def _copy(self, spill: Spill, one: BufferedRequest) -> bool:
        data = spill.serialized(one)
        if data is None:
            one.is_unwritable = True
            text = "request changed after it was sent, kept in memory only key=%r error=%s"
            error = spill.last_error
            self.news.put(lambda: log.warning(text, one.key, error))
            return True
        try:
            if not self._join(one, data, None):
                return False
        except RequestTooLarge:
            one.is_unwritable = True
            return True
        if one.journal_id is not None:
            self._read_to = one.journal_id
        return True

    def judge(self) -> None:
        """Let the state follow the levels, and wake those who wait for that."""
        memory, has_journal = self.memory, self.spill is not None
        self._become(
            next_level(
                self._level,
                self._marks,
                len(memory),
                memory.bytes,
                has_journal=has_journal,
                is_read_up=self.is_read_up,
            )
        )
        self._wake_reader()
        self._wake_first()
        for waker in self._awaiting_end:
            waker.wake()

    @property
    def state(self) -> BufferState:
        """Where a new request goes."""
        spill = self.spill
        if spill is None or not self._is_refused:
            return self._level
        is_direct = self._level is BufferState.DIRECT and not spill.is_write_ahead
        return self._level if is_direct else BufferState.BLOCKED

    def _become(self, level: BufferState) -> None:
        before, self._level = self._level, level
        if level is BufferState.SPILLING and before is not level:
            self.spilled += 1
            with suppress(JournalSlow):  # the next one that uses the journal continues it
                self._write_down()
        self._tell_state()

    def _tell_state(self) -> None:
        before, after = self._said, self.state
        if before is after:
            return
        self._said = after
        if (listener := self._options.state_listener) is not None:
            self.news.put(lambda: listener(before, after))
        self._to_send.wake()

    @staticmethod
    def _closed() -> ProducerClosed:
        return ProducerClosed("this producer is closed, and takes nothing more")

    def note_full(self, error: JournalSlow) -> None:
        """The disk was too slow for too long: the policy for a full buffer decides."""
        if self.spill is not None:
            self.spill.last_error = error
            self._is_refused = True
            self._tell_state()

    def _look_for_room(self) -> None:
        if self._is_refused and self.spill is not None and self.spill.has_room(0):
            self._is_refused = False
            self.judge()
            self._tell_state()

    def _push(self, one: BufferedRequest) -> None:
        memory = self.memory
        memory.push(one)
        if not memory.to_process:
            self._wake_sender()
        else:
            self._to_process[memory.lane(one)].wake()

    def _wake_sender(self) -> None:
        memory = self.memory
        is_enough = len(memory.ready) >= self._wanted or (
            memory.ready_bytes >= self._options.batch_bytes
        )
        if self._wanted and is_enough:
            self._to_send.wake()
            self._wanted = 0  # not before: if Ctrl-C comes between the two, the next call wakes it

    @property
    def _may_read(self) -> bool:
        """Whether memory has room for requests that are only in the journal."""
        if self.is_read_up or not (self._level is BufferState.DRAINING or self._is_refused):
            return False
        return not self._marks.is_high(len(self.memory), self.memory.bytes)

    def _wake_reader(self) -> None:
        if self.spill is not None and self._may_read:
            self._to_read.wake()

    def _wake_first(self) -> None:
        """Also without the lock: on the journal's thread, which must not wait for it."""
        with suppress(IndexError):
            self.awaiting_room.admit()


def _have_look(wake: Callable[[], object]) -> bool:
    wake()
    return False
