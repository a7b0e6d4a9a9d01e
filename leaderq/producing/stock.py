"""Everything that the threads of a buffered producer share, under one lock: memory, journal, state and account.

Who is authoritative: this class about what is pending; the sink about what is confirmed; the journal about what survives
the process. Callers put requests in (:class:`~leaderq.producing.door.Door`), workers and the sender take them from
memory, the feeder moves them from the journal into memory, and whoever learns the end of one tells it to
:meth:`Stock.settle`. No file is written under the lock, and no listener told; requests are queued for the journal under
it, since two must not change places between memory and journal; if the journal has too much under way to the disk, that
is tried again later, and the lock let go meanwhile.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from contextlib import suppress

from leaderq.clock import now_s
from leaderq.errors import JournalSlow, ProducerClosed, RequestGivenUp, RequestTooLarge
from leaderq.producing.account import Account, Reason
from leaderq.producing.entry import Entry, Lost
from leaderq.producing.journal.waiting import Waiting
from leaderq.producing.memory import Memory
from leaderq.producing.spill import Piece, Spill
from leaderq.producing.states import Input, Levels, Marks, State, settled, step
from leaderq.producing.telling import Teller, resolved
from leaderq.producing.unread import Unread

Gone = tuple[Entry, Reason, "BaseException | None"]
_PIECE_BYTES = 1 << 20


class Stock:
    """See the module. ``lanes`` is 0 without a process step."""

    def __init__(
        self,
        marks: Marks,
        spill: Spill | None,
        teller: Teller,
        *,
        lanes: int,
        batch_items: int,
        batch_bytes: int,
        linger_s: float,
        on_lost: Callable[[Lost], object] | None,
        on_state: Callable[[State, State], object] | None,
    ) -> None:
        self.marks, self.spill, self.teller = marks, spill, teller
        self._batch_items, self._batch_bytes, self._linger_s = batch_items, batch_bytes, linger_s
        self._on_lost, self._on_state = on_lost, on_state
        self.lock = threading.Lock()
        self._to_send = threading.Condition(self.lock)
        self._to_process = [threading.Condition(self.lock) for _ in range(lanes)]
        self.to_read = threading.Condition(self.lock)
        self.room, self._over = Waiting(), Waiting()  # of callers; the others are for threads of ours
        self._wanted = 0  # requests ready at which the sender wants to be woken; 0: it is not waiting
        self.is_closing = self._is_stopped = False
        self.memory = Memory(lanes)
        self.account = Account()
        self.state = State.DIRECT
        self.must_write_down = False
        """Whether memory has to go into the journal before anything else may."""
        self.spilled = 0
        """How many times memory has come to the high mark."""
        self.unread = Unread(0, 0) if spill is None else Unread(spill.depth, spill.last_id)
        if self.unread.count:
            self.account.recover(self.unread.count)
            self.state = State.DRAINING

    # -- for the sender and the workers ---------------------------------------------------------------------------------

    def take_batch(self) -> list[Entry]:
        """The next requests for the sink, in order; waits for enough of them, or for the linger time. ``[]``: stop."""
        while True:
            expired: list[Gone] = []
            batch: list[Entry] = []
            with self.lock:
                if not self._wait_for_batch():
                    return []
                now, size, ready = now_s(), 0, self.memory.ready
                while ready and len(batch) < self._batch_items and (not batch or size + ready[0].size <= self._batch_bytes):
                    entry = self.memory.next_ready()
                    if entry.is_expired(now):
                        expired.append((entry, Reason.EXPIRED, None))
                    else:
                        batch.append(entry)
                        size += entry.size
            if expired:
                self.settle((), expired)
            if batch:
                return batch

    def _wait_for_batch(self) -> bool:
        memory = self.memory
        while not self._is_stopped:
            if memory.ready:
                left_s = self._linger_s - (now_s() - memory.ready[0].since_s)
                is_enough = len(memory.ready) >= self._batch_items or memory.ready_bytes >= self._batch_bytes
                # Once memory is full nothing more will gather, and somebody may be waiting for room.
                if is_enough or left_s <= 0 or self.is_closing or self.state is not State.DIRECT:
                    return True
                self._wanted = self._batch_items
                self._to_send.wait(left_s)
            else:
                self._wanted = 1
                self._to_send.wait()
            self._wanted = 0
        return False

    def take_for_processing(self, lane: int, limit: int) -> list[Entry]:
        """The next requests of a lane, in order. ``[]``: stop."""
        line = self.memory.lanes[lane]
        with self.lock:
            while not line and not self._is_stopped:
                self._to_process[lane].wait()
            if self._is_stopped:
                return []
            return [line.popleft() for _ in range(min(limit, len(line)))]

    def processed(self, entries: Iterable[Entry]) -> None:
        """These are ready for the sink."""
        with self.lock:
            for entry in entries:
                if entry in self.memory:
                    self.memory.make_ready(entry)
            self._wake_sender()

    def settle(self, confirmed: Iterable[Entry], gone: Iterable[Gone] = ()) -> None:
        """The sink has acknowledged the former; the latter are given up. One that was settled already is passed over."""
        waiters: list[Future[None]] = []
        with self.lock:
            self.collect()
            count = 0
            for entry in confirmed:
                if self._is_over(entry):
                    count += 1
                    if entry.waiter is not None:
                        waiters.append(entry.waiter)
            self.account.confirm(count)
            for entry, reason, error in gone:
                if self._is_over(entry):
                    self.give_up(entry, reason, error)
            ids = self.unread.take_acks()
            self.judge()
        self.acknowledge(ids)
        for waiter in waiters:
            resolved(waiter, None)
        self.teller.tell()

    def _is_over(self, entry: Entry) -> bool:
        if not self.memory.remove(entry):
            return False
        if entry.is_stored and entry.journal_id is not None:
            self.unread.acks.append(entry.journal_id)
        return True

    def acknowledge(self, ids: list[int]) -> None:
        """Without the lock: tell the journal what is done with."""
        if ids and self.spill is not None:
            self.spill.ack(ids)
            if self.state is State.BLOCKED:
                with self.lock:
                    self.look_for_room(0)

    # -- for the feeder ------------------------------------------------------------------------------------------------

    def taken_out(self, piece: Piece, stored: int) -> list[Entry]:
        """Under the lock: this was read from the journal, where ``stored`` requests lay unread; if nothing was, these are
        lost there."""
        unread = self.unread
        unread.up_to = max(unread.up_to, piece.up_to)
        for number in piece.undecodable:
            unread.acks.append(number)
            self.give_up(unread.took_out(Entry(None, None, 0, 0.0, journal_id=number)), Reason.CORRUPT, None)
        if not piece.entries and not piece.undecodable:
            for _ in range(min(stored, unread.count)):
                self.give_up(unread.took_out(Entry(None, None, 0, 0.0)), Reason.CORRUPT, None)
        return [unread.took_out(entry) for entry in piece.entries]

    def drop_unread(self, most: int) -> None:
        """Under the lock: give up the oldest in the journal. Reads it under the lock: it is the last resort of who waits
        for room."""
        stored = self.unread.stored
        if self.spill is None or self.unread.is_read or not stored:
            return
        for entry in self.taken_out(self.spill.read(self.unread.up_to, self.unread.noted, most, _PIECE_BYTES), stored):
            self.unread.acks.append(entry.journal_id or 0)
            self.give_up(entry, Reason.OLDEST, None)

    # -- the end --------------------------------------------------------------------------------------------------------

    def close_door(self) -> None:
        """Take nothing more."""
        with self.lock:
            self.is_closing = True
            self.room.wake()
            self._to_send.notify_all()

    def stop(self) -> None:
        """Let all threads end."""
        self.close_door()
        with self.lock:
            self._is_stopped = True
            for condition in (self._to_send, self.to_read, *self._to_process):
                condition.notify_all()
            self._over.wake()

    @property
    def is_stopped(self) -> bool:
        """Whether all threads are to end."""
        return self._is_stopped

    def wait_settled(self, timeout_s: float, up_to: int | None = None) -> bool:
        """Until the first ``up_to`` requests (``None``: all) are settled; whether that came in time."""
        self._over.until(self.lock, lambda: self._is_stopped or self._are_settled(up_to), timeout_s)
        with self.lock:
            return self._are_settled(up_to)

    @property
    def line_end(self) -> int:
        """The number that the request accepted last has, or will have, in memory; to be waited for."""
        with self.lock:
            return self.memory.pushed + self.unread.count

    def _are_settled(self, up_to: int | None) -> bool:
        if up_to is None or self.account.pending == 0:
            return self.account.pending == 0
        oldest = self.memory.oldest
        return (self.memory.pushed if oldest is None else oldest.seq - 1) >= up_to

    def is_written_down(self) -> bool:
        """After :meth:`stop`: put what is left in memory into the journal, in order; ``False``: its disk is behind."""
        with self.lock, suppress(JournalSlow):
            self.write_down()
            return True
        return False

    def leave(self) -> None:
        """After that: give up what the journal does not have."""
        with self.lock:
            for entry in [entry for entry in self.memory if not entry.is_journaled]:
                self.memory.remove(entry)
                reason = Reason.JOURNAL if entry.is_kept_out else Reason.CLOSED
                why = self.spill.prepared(entry) if self.spill is not None and entry.is_kept_out else None
                self.give_up(entry, reason, why)

    def acknowledge_late(self) -> None:
        """After all that was appended is written: tell the journal what was settled before its id was known."""
        with self.lock:
            self.collect()
            ids = self.unread.take_acks()
        self.acknowledge(ids)

    def left(self) -> None:
        """After the journal was closed: tell who waits that nobody will be told any more."""
        with self.lock:
            self.collect()
            lost, waiters = self.unread.leave()
            for entry in lost:
                self.give_up(self.unread.took_out(entry), Reason.JOURNAL, None)
            for entry in [entry for entry in self.memory if not entry.is_journaled]:  # the disk refused it a moment ago
                self.memory.remove(entry)
                self.give_up(entry, Reason.JOURNAL, None)
            waiters += [entry.waiter for entry in self.memory if entry.waiter is not None]
        kept = ProducerClosed("closed before it was confirmed; the request is in the journal, and is sent from there")
        for waiter in waiters:
            resolved(waiter, kept)
        self.teller.tell()

    # -- under the lock, for this class and the door --------------------------------------------------------------------

    def accept_direct(self, entry: Entry) -> None:
        """It is in memory now."""
        self.account.accept()
        self.push(entry)
        if self.marks.is_high(len(self.memory), self.memory.bytes):
            self.judge()

    def accept_spilled(self, entry: Entry) -> None:
        """It is in the journal only, or on its way there."""
        self.account.accept()
        self.unread.add(entry)
        self._wake_feeder()

    def collect(self) -> None:
        """Take note of what the journal has stored, or could not."""
        news = self.spill.news if self.spill is not None else None
        while news:
            stored = news.popleft()
            if self.unread.note(stored, self.memory):
                self.give_up(self.unread.took_out(stored.entry), Reason.JOURNAL, stored.error)
            if stored.id is None:
                self.turn(step(self.state, Input.JOURNAL_FULL, has_journal=True))

    def judge(self) -> None:
        """Let the state follow the levels, and wake whoever that concerns."""
        memory = self.memory
        levels = Levels(len(memory), memory.bytes, self.unread.count)
        self.turn(settled(self.state, levels, self.marks, has_journal=self.spill is not None))
        self._wake_feeder()
        self.room.wake()
        self._over.wake()

    def look_for_room(self, size: int) -> None:
        """Leave *blocked* if memory, or with a journal that, takes ``size`` bytes again."""
        spill = self.spill
        if self.state is not State.BLOCKED:
            return
        if spill is None:
            if self.marks.fits(len(self.memory), self.memory.bytes, size):
                self.turn(step(State.BLOCKED, Input.MEMORY_LOW, has_journal=False))
            return
        self.collect()
        if self.unread.is_held_up:
            self.unread.write_retained(spill)
        if not self.unread.is_held_up and spill.has_room(size):
            self.turn(step(State.BLOCKED, Input.JOURNAL_ROOM, has_journal=True))
            self.judge()

    def turn(self, state: State) -> None:
        """The one place where the state changes."""
        before = self.state
        if state is before:
            return
        self.state = state
        if state is State.SPILLING:
            self.spilled += before in (State.DIRECT, State.DRAINING)
            self.must_write_down = True
            with suppress(JournalSlow):  # whoever comes to the journal next goes on with it
                if not self.write_down():
                    self.state = State.BLOCKED
        elif state is State.DIRECT:
            self.must_write_down = False
        if self._on_state is not None and self.state is not before:
            tell, after = self._on_state, self.state
            self.teller.note(lambda: tell(before, after))
        self._to_send.notify()

    def write_down(self) -> bool:
        """Put all of memory into the journal too, in order: what comes after it goes there only, and must stay behind it.
        ``False``: the journal is full.

        A request that cannot be written any more (too large, or changed by its owner so that the codec refuses it) stays
        in memory alone, and is sent from there; it stops no other.

        :raises JournalSlow: so much is on its way to the disk that this has to go on later.
        """
        for entry in self.memory.unwritten() if self.spill is not None else ():
            try:
                if self.spill is None or self.spill.prepared(entry) is not None:
                    entry.forget_journal()
                elif not self.spill.append(entry, None):
                    return False
            except RequestTooLarge:
                entry.forget_journal()
            finally:
                entry.data = None  # else memory would hold everything twice
        self.must_write_down = False
        return True

    def refuse(self, why: str) -> None:
        """A call was refused before it came to the door."""
        with self.lock:
            self.account.refused[why] += 1

    def give_up(self, entry: Entry, reason: Reason, error: BaseException | None) -> None:
        """It is not pending any more, and those concerned will be told."""
        self.account.give_up(reason)
        if self._on_lost is not None:
            tell, lost = self._on_lost, Lost(entry.request, entry.key, reason, error)
            self.teller.note(lambda: tell(lost))
        if entry.waiter is not None:
            told = RequestGivenUp(reason.value)
            told.__cause__ = error
            self.teller.owe(entry.waiter, told)

    def push(self, entry: Entry) -> None:
        """It comes into memory, behind all others."""
        lane = self.memory.push(entry)
        if lane is None:
            self._wake_sender()
        else:
            self._to_process[lane].notify()

    def _wake_sender(self) -> None:
        if self._wanted and (len(self.memory.ready) >= self._wanted or self.memory.ready_bytes >= self._batch_bytes):
            self._to_send.notify()
            self._wanted = 0  # not before: if Ctrl-C comes between the two, the next caller wakes it

    @property
    def may_read(self) -> bool:
        """Whether memory has room for what is in the journal only."""
        if not self.unread.count or self.state not in (State.DRAINING, State.BLOCKED):
            return False
        return not self.marks.is_high(len(self.memory), self.memory.bytes)

    def _wake_feeder(self) -> None:
        if self.spill is not None and self.may_read:
            self.to_read.notify()
