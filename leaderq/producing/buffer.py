"""Everything that the threads of a buffered producer share: memory, journal, state and account,
under one lock that only this module takes.

Who is authoritative: this class about what is pending; the sink about what is confirmed; the
journal about what survives the process. Callers put requests in
(:mod:`~leaderq.producing.admission`), workers and the sender take them from memory, the journal's
reader moves them from the journal into memory, and whoever learns the end of one tells it to
:meth:`RequestBuffer.settle`. No file is written under the lock, and no listener told. Requests are
queued for the journal under it, because two must not change places between memory and journal; if
too much is on its way to the disk, that is tried again later, and the lock released meanwhile.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

from leaderq import clock
from leaderq.errors import (
    BufferFull,
    JournalSlow,
    ProducerClosed,
    RequestGivenUp,
    RequestTooLarge,
    WouldDeadlock,
    with_cause,
)
from leaderq.producing.account import (
    BufferEvent,
    BufferState,
    LossReason,
    Lost,
    RequestAccount,
    Settlement,
    settled,
    step,
)
from leaderq.producing.listeners import LossLog, news_of, resolve
from leaderq.producing.memory import BufferedRequest, JournalCopy, RequestMemory, RequestPlace
from leaderq.producing.options import Block, ProducerOptions
from leaderq.producing.spill import DiskState, JournalBacklog, OnDurable, Piece, Spill
from leaderq.threads import Waiter, WaitingLine, Waker, primitives
from leaderq.timeouts import Deadline

log = logging.getLogger(__name__)

Gone = tuple[BufferedRequest, LossReason, "BaseException | None"]
_READ_ITEMS = 1000
_LOOK_AT_NEWS_S = 0.02
_LOSSES = 20
_TAKEN_ALONG = 4  # a quarter of the memory is left for three quarters to be written
_HELD_S = 0.005


class ReadOrder(NamedTuple):
    """A range of the journal to read: behind which id and up to which, how much memory has room
    for, and how many requests are stored there.
    """

    after_id: int
    last_id: int
    items: int
    bytes: int
    stored: int


class RequestBuffer:
    """See the module. Methods marked *under the lock* are for :meth:`admit`."""

    def __init__(self, options: ProducerOptions, spill: Spill | None) -> None:
        self._options, self._marks = options, options.marks
        self.spill = spill
        self.news = news_of(options.name)
        """Calls of listeners and futures, to be made without the lock."""
        self.loss_log = LossLog(options.name, self.news)
        self._losses: deque[Lost] = deque(maxlen=_LOSSES)
        # Reentrant only so that a call which interrupts its own thread can be refused.
        self._lock = primitives.RLock()
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
        self.memory = RequestMemory(options.lanes, has_journal=spill is not None)
        self.account = RequestAccount()
        self.state = BufferState.DIRECT
        self._must_write_down = False  # memory must go into the journal before anything else may
        self.spilled = 0
        """How many times memory has come to the high mark."""
        self.backlog = (
            JournalBacklog(0, 0)
            if spill is None
            else JournalBacklog(spill.journal.depth, spill.journal.next_id - 1)
        )
        if spill is not None:
            spill.journal.when_room = self._wake_first
            spill.journal.halt.is_wanted = True
        if self.backlog.count:
            self.account.recover(self.backlog.count)
            self.state = BufferState.DRAINING

    @contextmanager
    def locked(self) -> Iterator[RequestBuffer]:
        """Hold the lock, to look at several things at one moment."""
        self.refuse_reentry()
        with self._lock:
            self._collect()
            yield self

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

    def take_batch(self, until_s: float | None = None) -> list[BufferedRequest]:
        """Return the next requests for the sink, in order, after waiting for enough of them, or for
        the linger time. ``[]``: stop, or it is ``until_s``."""
        while not self.is_stopped:
            with self._lock:
                wait_s = self._linger_s()
                taken = self._taken() if wait_s == 0.0 else None
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
        if is_enough or left_s <= 0 or self.is_closing or self.state is not BufferState.DIRECT:
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
                if line:
                    return [line.popleft() for _ in range(min(limit, len(line)))]
            self._to_process[worker].wait()
        return []

    def processed(self, requests: Iterable[BufferedRequest]) -> None:
        with self._lock:
            for one in requests:
                if one.place is RequestPlace.MEMORY:
                    self.memory.make_ready(one)
            self._wake_sender()

    def settle(self, confirmed: Iterable[BufferedRequest], gone: Iterable[Gone] = ()) -> None:
        """The former are acknowledged by the sink, the latter lost; settled ones are
        passed over.
        """
        waited: list[BufferedRequest] = []
        with self._lock:
            self._collect()
            count = 0
            for one in confirmed:
                if self._is_over(one):
                    count += 1
                    if one.waiter is not None:
                        waited.append(one)
            self.account.confirm(count)
            for one, reason, error in gone:
                if self._is_over(one):
                    self.give_up(one, reason, error)
            ids = self.backlog.take_acks()
            self.judge()
        self._acknowledge(ids)
        for one in waited:
            resolve(one.waiter, one.stored_at)
        self.news.deliver()

    def _is_over(self, one: BufferedRequest) -> bool:
        if not self.memory.remove(one):
            return False
        if one.copy is JournalCopy.STORED and one.journal_id is not None:
            self.backlog.acks.append(one.journal_id)
        return True

    def _acknowledge(self, ids: list[int]) -> None:
        """Without the lock: acknowledge settled requests in the journal."""
        if ids and self.spill is not None:
            self.spill.ack(ids)
            if self.state is BufferState.BLOCKED:
                with self._lock:
                    self._look_for_room(0)

    def next_order(self) -> ReadOrder | None:
        """Return the next range to read, as soon as there is one. ``None``: stop."""
        backlog, spill = self.backlog, self.spill
        while not self.is_stopped and spill is not None:
            wait_s: float | None = 0.0
            with self._lock:
                self._collect()
                if backlog.disk is not DiskState.TAKES:  # else it is blocked by a cap, if at all
                    self._look_for_room(0)
                ids = backlog.take_acks()
                if not ids:
                    if self._may_read and backlog.stored:
                        backlog.is_read = True
                        marks, memory = self._marks, self.memory
                        items = max(1, int(marks.high * marks.max_items) - len(memory))
                        size = max(1, int(marks.high * marks.max_bytes) - memory.bytes)
                        items = min(items, _READ_ITEMS)
                        return ReadOrder(backlog.up_to, backlog.noted, items, size, backlog.stored)
                    is_refused = backlog.disk is not DiskState.TAKES
                    is_coming = backlog.count or spill.news or is_refused
                    wait_s = _LOOK_AT_NEWS_S if is_coming else None
            self._acknowledge(ids)
            if wait_s != 0.0:
                self._to_read.wait(wait_s)
        return None

    def fill(self, piece: Piece | None, order: ReadOrder) -> None:
        """Take requests that were read into memory; ``None``: nothing could be read."""
        with self._lock:
            self.backlog.is_read = False
            if piece is not None:
                for one in self.taken_out(piece, order.stored):
                    self._push(one)
            ids = self.backlog.take_acks()
            self.judge()
        self._acknowledge(ids)
        self.news.deliver()

    def taken_out(self, piece: Piece, stored: int) -> list[BufferedRequest]:
        """This was read from the journal, where ``stored`` requests lay unread; nothing: lost."""
        backlog = self.backlog
        backlog.up_to = max(backlog.up_to, piece.up_to)
        for number in piece.undecodable:  # not acknowledged: another codec may know it
            self._lose(number, LossReason.UNDECODABLE)
        if not piece.requests and not piece.undecodable:
            for _ in range(min(stored, backlog.count)):
                self._lose(None, LossReason.CORRUPT)
        return [backlog.take_out(one) for one in piece.requests]

    def _lose(self, number: int | None, reason: LossReason) -> None:
        lost = BufferedRequest(None, None, 0, 0.0, journal_id=number)
        self.give_up(self.backlog.take_out(lost), reason, None)

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

    def wait_settled(self, timeout_s: float | None, up_to: int | None = None) -> bool:
        """Wait until the first ``up_to`` requests (``None``: all) are settled; return whether that
        came in time."""
        deadline, waker = Deadline(timeout_s), Waker()
        with self._lock:
            self._awaiting_end.append(waker)
        try:
            while True:
                with self._lock:
                    memory, oldest = self.memory, self.memory.oldest
                    last = memory.pushed if oldest is None else oldest.seq - 1
                    if self.account.pending == 0 or (up_to is not None and last >= up_to):
                        return True
                if self.is_stopped or deadline.is_over:
                    return False
                waker.wait(deadline.remaining_s)
        finally:
            with self._lock:
                self._awaiting_end.remove(waker)

    def settlement(self, up_to: int | None = None) -> Settlement:
        """Return what became of the first ``up_to`` requests (``None``: all) and of lost ones."""
        with self._lock:
            self._collect()
            memory, backlog, account = self.memory, self.backlog, self.account
            journaled, pending = memory.unsettled(up_to)
            behind = backlog.count
            if up_to is not None:
                behind = min(behind, max(0, up_to - memory.pushed))
            stored = min(behind, backlog.stored)
            lost = {
                one.value: n for one, n in account.gone.items() if one is not LossReason.SKIPPED
            }
            spill, error = self.spill, None
            if spill is not None:
                if not account.pending:
                    spill.unforced = None
                error = spill.unforced if journaled + stored else None
            return Settlement(
                account.confirmed,
                journaled + stored,
                pending + behind - stored,
                lost,
                tuple(self._losses),
                error,
            )

    @property
    def line_end(self) -> int:
        """The number that the request accepted last has, or will have, in memory."""
        with self._lock:
            return self.memory.pushed + self.backlog.count

    def write_down(self) -> bool:
        """After :meth:`stop`: put the rest into the journal, in order; return whether it has taken
        all, or takes no more.
        """
        spill = self.spill
        with self._lock, suppress(JournalSlow):
            if spill is not None and spill.is_halted and spill.is_under_way:
                return False  # each that it refuses has to be told first
            self._rewrite()
            return True
        return False

    def take_at_once(self, one: BufferedRequest, on_durable: OnDurable | None) -> bool:
        """Take a request if there is room and nobody waits for it, at a third of the cost of an
        admission; raises as an admission does, except ``BufferFull``.
        """
        self.refuse_reentry()
        with self._lock:
            if self.awaiting_room:
                return False
            try:
                is_taken = self.place(one, on_durable)
            except JournalSlow:
                return False
        self.news.deliver()
        return is_taken

    def admit(self, attempt: Callable[[], float | None]) -> float | None:
        """Make one attempt of an admission, under the lock, and return its result.

        :raises WouldDeadlock: it interrupts its own thread in here.
        """
        self.refuse_reentry()
        try:
            with self._lock:
                return attempt()
        finally:
            self.news.deliver()

    def leave_line(self, waiter: Waiter[Callable[[], object]]) -> None:
        with self._lock:
            self.awaiting_room.leave(waiter)

    def refuse(self, why: str) -> None:
        self.refuse_reentry()
        with self._lock:
            self.account.refused[why] += 1

    # -- under the lock ----------------------------------------------------------------------------

    def place(self, one: BufferedRequest, on_durable: OnDurable | None) -> bool:
        """Put it where the state says; return ``False`` if there is no room.

        :raises JournalSlow: at this moment too much waits for the disk.
        """
        memory, marks, spill = self.memory, self._marks, self.spill
        if self.is_closing:
            raise self._closed()
        if self.state is BufferState.BLOCKED:
            self._look_for_room(one.size)
        items = len(memory)
        if self.state is BufferState.DIRECT and not marks.fits(items, memory.bytes, one.size):
            self.turn(BufferEvent.MEMORY_HIGH)
        if self.state is not BufferState.DIRECT:
            return self.state is not BufferState.BLOCKED and self._place_in_journal(one, on_durable)
        if spill is not None and spill.is_write_ahead and not self._write(one, on_durable):
            return False
        self.account.accept()
        self._push(one)
        if marks.is_high(items + 1, memory.bytes):
            self.judge()
        elif spill is not None and marks.is_near(items + 1, memory.bytes):
            # Each new request takes some of the oldest along, so that nobody has to wait for all of
            # them when spilling begins.
            with suppress(JournalSlow):
                self._write_down(_TAKEN_ALONG)
        return True

    def _place_in_journal(self, one: BufferedRequest, on_durable: OnDurable | None) -> bool:
        if one.waiter is not None and self.backlog.waiting >= self._options.max_waiters:
            if isinstance(self._options.when_full, Block):
                return False
            self.account.refused["too many futures"] += 1
            raise BufferFull(
                f"{self.backlog.waiting} futures wait for requests in the journal, the most that "
                "are kept (max_waiters)"
            )
        if self._must_write_down and not self._write_down():
            self.turn(BufferEvent.JOURNAL_FULL)
            return False
        if not self._write(one, on_durable):
            return False
        self.account.accept()
        self.backlog.add(one)
        self._wake_reader()
        return True

    def _write(self, one: BufferedRequest, on_durable: OnDurable | None) -> bool:
        """Append it to the journal; return ``False`` if that is full, as the state then says."""
        if self.spill is None:
            return True
        try:
            is_taken = self.spill.append(one, on_durable)
        except RequestTooLarge:
            self.account.refused["too large"] += 1
            raise
        if not is_taken:
            self.turn(BufferEvent.JOURNAL_FULL)
        return is_taken

    def _collect(self) -> None:
        """Note which records the journal has stored, and which it could not."""
        news = self.spill.news if self.spill is not None else None
        while news:
            written = news.popleft()
            if self.backlog.note(written):
                one = self.backlog.take_out(written.request)
                self.give_up(one, LossReason.JOURNAL, written.error)
            if written.id is None:
                self.turn(BufferEvent.JOURNAL_FULL)
                self._to_read.wake()  # it looks again when the disk takes more

    def judge(self) -> None:
        """Let the state follow the levels, and wake those who wait for that."""
        memory = self.memory
        levels = len(memory), memory.bytes, self.backlog.count
        has_journal = self.spill is not None
        self._become(settled(self.state, self._marks, *levels, has_journal=has_journal))
        self._wake_reader()
        self._wake_first()
        for waker in self._awaiting_end:
            waker.wake()

    @staticmethod
    def _closed() -> ProducerClosed:
        return ProducerClosed("this producer is closed, and takes nothing more")

    def _look_for_room(self, size: int) -> None:
        """Leave *blocked* if memory, or the journal if there is one, takes ``size`` bytes again."""
        spill = self.spill
        if self.state is not BufferState.BLOCKED:
            return
        if spill is None:
            if self._marks.fits(len(self.memory), self.memory.bytes, size):
                self.turn(BufferEvent.MEMORY_LOW)
            return
        with suppress(JournalSlow):
            if self._rewrite() and spill.has_room(size):
                self.backlog.disk = DiskState.TAKES
                self.turn(BufferEvent.JOURNAL_ROOM)
                self.judge()

    def _rewrite(self) -> bool:
        """Give refused requests to the journal again, in order; return whether all of memory, and
        all that was only in the journal, is on its way.

        :raises JournalSlow: this must continue later.
        """
        backlog, spill = self.backlog, self.spill
        if spill is None:
            return True
        has_told_all = not spill.is_under_way  # before its news is noted
        self._collect()
        if spill.is_halted:
            if not has_told_all or (clock.now_s() < backlog.again_at_s and not self.is_stopped):
                return False
            spill.journal.halt.error = None
            backlog.begin_again()
            self.memory.begin_again()
        if not self._write_down() or not backlog.write_retained(spill):
            return False
        if not spill.is_under_way and not spill.is_halted:
            backlog.note_room()
        return not backlog.waits_for_disk

    def turn(self, happened: BufferEvent) -> None:
        self._become(step(self.state, happened, has_journal=self.spill is not None))

    def _become(self, state: BufferState) -> None:
        """The one place where the state changes."""
        before = self.state
        if state is before:
            return
        self.state = state
        if state is BufferState.SPILLING:
            self.spilled += before in (BufferState.DIRECT, BufferState.DRAINING)
            self._must_write_down = True
            with suppress(JournalSlow):  # the next one that uses the journal continues it
                if not self._write_down():
                    self.state = BufferState.BLOCKED
        elif state is BufferState.DIRECT:
            self._must_write_down = False
        listener = self._options.state_listener
        if listener is not None and self.state is not before:
            after = self.state
            self.news.put(lambda: listener(before, after))
        self._to_send.wake()

    def _write_down(self, most: int | None = None) -> bool:
        """Put all of memory into the journal too, in order, or ``most`` of the oldest: later
        requests go only there, and must stay behind. Return ``False`` if the journal is full.

        A request that cannot be written any more (too large, or changed by its owner so that the
        codec refuses it) stays in memory only, and does not stop others.

        :raises JournalSlow: this must continue later.
        """
        until_s, written = clock.now_s() + _HELD_S, 0
        while self.spill is not None and (one := self.memory.first_unwritten) is not None:
            if written == most:
                return True
            if not self._write_copy(self.spill, one):
                return False
            written += 1
            if most is None and clock.now_s() >= until_s and not self.is_stopped:
                raise JournalSlow("memory is on its way to the journal; the rest follows")
        self._must_write_down = False
        return True

    def _write_copy(self, spill: Spill, one: BufferedRequest) -> bool:
        try:
            if (error := spill.prepare(one)) is not None:
                one.copy = JournalCopy.NEVER
                text = "request changed after it was sent, kept in memory only key=%r error=%s"
                self.news.put(lambda: log.warning(text, one.key, error))
                return True
            return spill.append(one, None)
        except RequestTooLarge:
            one.copy = JournalCopy.NEVER
            return True
        finally:
            one.data = None  # otherwise memory would hold everything twice

    def give_up(
        self, one: BufferedRequest, reason: LossReason, error: BaseException | None
    ) -> None:
        """It is lost and not pending any more; its listeners and future will be told."""
        one.place = RequestPlace.SETTLED
        self.account.give_up(reason)
        lost = Lost(one.request, one.key, reason, error)
        self.loss_log.note(lost)
        if reason is not LossReason.SKIPPED:
            self._losses.append(lost)
        listener = self._options.dropped_listener
        if listener is not None:
            self.news.put(lambda: listener(lost))
        waiter = one.waiter
        if waiter is not None:
            told = with_cause(RequestGivenUp(reason.value), error)
            self.news.put(lambda: resolve(waiter, error=told), is_owed=True)

    def _push(self, one: BufferedRequest) -> None:
        worker = self.memory.push(one)
        if worker is None:
            self._wake_sender()
        else:
            self._to_process[worker].wake()

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
        is_reading = self.state in (BufferState.DRAINING, BufferState.BLOCKED)
        if not self.backlog.count or not is_reading:
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
