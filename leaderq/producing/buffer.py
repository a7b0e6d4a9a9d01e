"""Everything that the threads of a buffered producer share, under one lock that only this module
takes: the sequence of requests (:mod:`~leaderq.producing.sequence`), its state, and the waits.

Who is interrupted between two statements, by Ctrl-C say, leaves the buffer *dirty*: the next one
that takes the lock works everything out again.

Who is authoritative: the sink about what is confirmed; the journal about what survives the process.
Callers put requests in (:class:`Admission`), the sender takes them from memory, the journal's
reader moves them from the journal into memory, and whoever learns the end of one tells it
to :meth:`RequestBuffer.settle`. No file is written under the lock, and no listener told. The
journal's gate may be taken under it, never the other way round.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from leaderq.base import clock
from leaderq.base.timeouts import Deadline
from leaderq.errors import (
    BufferFull,
    JournalSlow,
    LeaderqError,
    ProducerClosed,
    RequestTooLarge,
    WouldDeadlock,
)
from leaderq.producing.account import NEAR, BufferState, LossReason
from leaderq.producing.listeners import OnDurable
from leaderq.producing.options import Block, FullPolicy, ProducerOptions, WhenFull
from leaderq.producing.request import BufferedRequest
from leaderq.producing.sequence import LineEnd, RequestSequence
from leaderq.producing.spill import Piece, Spill
from leaderq.threads import Waker, primitives

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Gone = tuple[BufferedRequest, LossReason, "BaseException | None"]
Wake = Callable[[], object]
ReadOrder = tuple[int, int, int, int]
"""What ``Spill.read`` is to read."""
_DIRECT, _SPILLING, _DRAINING = BufferState.DIRECT, BufferState.SPILLING, BufferState.DRAINING
_READ_ITEMS = 1000
_READ_LOOK_S = 0.02
_TAKEN_ALONG = 4  # a quarter of the memory is left for three quarters to be written
_HELD_S = 0.005
_MOVING_S = 0.05
_ROOM_LOOK_S = 0.05
_GIVEN_S = 0.02
_CROWDED_S = 1.0
_CROWDED_LOOK_S = 0.01


def _locked(
    method: Callable[Concatenate[RequestBuffer, P], T],
) -> Callable[Concatenate[RequestBuffer, P], T]:
    """Make a method run under the lock. Before it, work that an interrupt has left unfinished is
    finished; after it, listeners and futures are told the news.

    The method raises ``WouldDeadlock`` if its caller, a finalizer or a signal handler, has
    interrupted its own thread in here.
    """

    @wraps(method)
    def call(self: RequestBuffer, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self._lock._is_owned() or self._is_in_journal():  # type: ignore[attr-defined]
            raise WouldDeadlock(
                "a finalizer or a signal handler that interrupted this thread inside the producer "
                "was about to wait for it; nothing was accepted. Have another thread send"
            )
        with self._lock:
            if self._is_dirty:
                self._rebuild()
            self._is_dirty = True
            try:
                result = method(self, *args, **kwargs)
            except LeaderqError:
                self._is_dirty = False
                raise
            self._is_dirty = False
        if self._resolved:
            self._tell()
        self.news.deliver()
        return result

    return call


class RequestBuffer(RequestSequence):
    """See the module."""

    def __init__(self, options: ProducerOptions, spill: Spill | None) -> None:
        super().__init__(options, spill)
        self._near = math.inf if spill is None else NEAR
        self._near_items = self._near * options.max_items
        self._near_bytes = self._near * options.max_bytes
        is_quick = spill is None or not spill.is_write_ahead
        self._quick_items = options.max_items if is_quick else 0
        # Reentrant only so that a call which interrupts its own thread can be refused.
        self._lock = primitives.RLock()
        self._is_dirty = False
        self._to_send, self._to_read = Waker(), Waker()
        self._awaiting_end: list[Waker] = []
        self.awaiting_room: deque[Wake] = deque()
        """How to wake those who wait for room, first come, first served. What room there is depends
        on the state, the disk and the policy, so the first is woken, and looks for itself."""
        self._wanted = 0
        """How many requests ready wake the sender; 0: it does not wait."""
        self.is_closing = False
        self.is_stopped = False
        """Whether all threads are to end."""
        self._level = _DRAINING if self._recovered else _DIRECT
        self._is_refused = False  # whether the journal took nothing when it was asked last
        self._moved_s = -math.inf  # when the sink confirmed something for the last time
        self.spilled = 0
        self._is_in_journal: Callable[[], bool] = bool
        if spill is not None:
            spill.journal.when_room = self.wake_first
            self._is_in_journal = spill.journal.is_entered

    def _rebuild(self) -> None:
        self.rebuild()
        self._judge()
        self._to_send.wake()

    @_locked
    def begin_again(self) -> None:
        """The sender was interrupted: what it had in hand waits once more."""
        self.taken = self._first - 1
        self._rebuild()

    @_locked
    def look(self, at: Callable[[RequestBuffer], T]) -> T:
        """Return what ``at`` returns for the buffer, called under the lock."""
        return at(self)

    # -- for the sender and the reader -------------------------------------------------------------

    def take_batch(self, until_s: float | None = None) -> list[BufferedRequest]:
        """Wait until there are enough requests for the sink, or the linger time has passed; return
        them in order. ``[]``: the sender must stop, or ``until_s`` has come.
        """
        while not self.is_stopped:
            batch, wait_s = self._next_batch()
            if batch:
                return batch
            if until_s is not None:
                left_s = until_s - clock.now_s()
                if left_s <= 0:
                    return []
                wait_s = left_s if wait_s is None else min(wait_s, left_s)
            self._to_send.wait(wait_s)
        return []

    @_locked
    def _next_batch(self) -> tuple[list[BufferedRequest], float | None]:
        """Return the next batch or, if it is empty, how many seconds to wait for more; ``None``:
        until a request comes.
        """
        first, options = self.first_ready, self._options
        if first is None:
            self._wanted = 1
            return [], None
        is_enough = (
            self.ready_items >= options.batch_items or self.ready_bytes >= options.batch_bytes
        )
        left_s = options.linger_s - (clock.now_s() - first.since_s)
        # Once memory is full nothing more will gather, and somebody may be waiting for room.
        is_full = self.is_closing or self._level is not _DIRECT
        self._wanted = 0 if is_enough or left_s <= 0 or is_full else options.batch_items
        if self._wanted:
            return [], left_s
        return self.take_ready(options.batch_items, options.batch_bytes), None

    @_locked
    def settle(self, confirmed: Sequence[BufferedRequest], gone: Iterable[Gone] = ()) -> None:
        """Note that the sink has acknowledged ``confirmed``, and that ``gone`` are lost. Requests
        that were settled before are ignored.
        """
        if self._final is not None:
            return  # the sink was left behind: what it had is in the journal, or was given up
        parts = [part for one in confirmed for part in one.parts or (one,)]
        if here := [part for part in parts if part.seq in self.unsettled]:
            self._moved_s = clock.now_s()
            self.confirm(here)
        for one, reason, error in gone:
            if one.seq in self.unsettled:
                self.give_up(one, reason, error)
        self._judge()

    def next_order(self) -> ReadOrder | None:
        """Wait for the next range of the journal to read, and return it; ``None``: the reader must
        stop.
        """
        while not self.is_stopped:
            order, wait_s = self._order()
            if order is not None:
                return order
            self._to_read.wait(wait_s)
        return None

    @_locked
    def _order(self) -> tuple[ReadOrder | None, float | None]:
        """Return the range to read or, without one, how many seconds to wait for one."""
        spill, options = self.spill, self._options
        if spill is None:
            return None, None
        if self._is_refused and spill.has_room:
            self._is_refused = False
            self._judge()
        journal = spill.journal
        last_id = journal.stored_id if journal.trouble is None else self.last_id
        if not self._may_read or last_id <= self._read_to:
            return None, None if self.is_read_up and not self._is_refused else _READ_LOOK_S
        items, size = options.max_items - self.items, options.max_bytes - self.bytes
        return (self._read_to, last_id, min(items, _READ_ITEMS), size), None

    @_locked
    def fill(self, piece: Piece) -> None:
        self.take_in(piece)
        self._wake_sender()
        self._judge()

    # -- the end -----------------------------------------------------------------------------------

    @_locked
    def close_entry(self, *, is_end: bool = False) -> None:
        """Accept no more requests; with ``is_end``, let all threads end."""
        self.is_closing = True
        for wake in (self._to_send.wake, *self.awaiting_room):
            wake()
        if is_end:
            self.is_stopped = True
            for waker in (self._to_send, self._to_read, *self._awaiting_end):
                waker.wake()

    @_locked
    def write_down(self) -> bool:
        """At the end: write the rest of memory to the journal, in order; return whether the journal
        took everything.
        """
        self._is_refused = False
        with suppress(JournalSlow):
            return self._write_down()
        return False

    @_locked
    def give_up_unwritten(self) -> None:
        """At the end: drop the requests that are not in the journal, and cannot get there
        any more.
        """
        spill, reason, error = self.spill, LossReason.CLOSED, None
        here = self.split([*self.unsettled.values()])
        left = [one for one in here if not self.is_stored(one)]
        if spill is not None:
            reason, error = LossReason.JOURNAL, spill.last_error
            for one in spill.unwritten(max(self._read_to, spill.journal.stored_id)):
                one.waiter = self._waiters.pop(one.journal_id or 0, None)
                left.append(one)
        for one in left:
            if one.is_unwritable and spill is not None:
                spill.serialized(one)
                error = spill.last_error
            self.give_up(one, reason, error)

    @_locked
    def end(self) -> list[tuple[int | None, primitives.Future[Any]]]:
        """Stop the account after the journal was closed; return the ids and futures of the requests
        that are in the journal.
        """
        self._final = self.unread, self.corrupt
        waiters: list[tuple[int | None, primitives.Future[Any]]] = [*self._waiters.items()]
        here = self.unsettled.values()
        return waiters + [(one.journal_id, one.waiter) for one in here if one.waiter]

    @_locked
    def line_end(self) -> LineEnd:
        self._run = None
        return LineEnd(self.pushed, self.last_id)

    def wait_settled(self, timeout_s: float | None, end: LineEnd | None = None) -> bool:
        """Wait until everything up to ``end`` (``None``: all) is settled; return whether that came
        in time."""
        deadline, waker = Deadline(timeout_s), Waker()
        self._awaiting_end.append(waker)
        try:
            while not self.look(lambda buffer: buffer._is_passed(end)):
                if self.is_stopped or deadline.is_over:
                    return False
                waker.wait(deadline.remaining_s)
            return True
        finally:
            self._awaiting_end.remove(waker)

    parted = _locked(RequestSequence.split)
    settlement = _locked(RequestSequence.settled)

    @_locked
    def refuse(self, why: str) -> None:
        self.refused[why] += 1

    # -- the way in --------------------------------------------------------------------------------

    def take_at_once(self, request: Any, size: int, one: BufferedRequest | None = None) -> bool:
        """Take a request into memory if no decision is needed; otherwise return ``False``, and an
        :class:`Admission` must decide. Without ``one`` only the request's order is kept, and it
        joins a run.

        This is a single function, because nearly all requests come this way. As with every locked
        method, an interrupt in here leaves the buffer dirty.
        """
        with self._lock:
            items, total = self.pushed - self._departed + 1, self.bytes + size
            if (
                self._is_dirty
                or items >= self._quick_items
                or total >= self._options.max_bytes
                or self._level is not _DIRECT
                or self.awaiting_room
                or self.is_closing
                or (
                    (items >= self._near_items or total >= self._near_bytes) and not self._is_moving
                )
            ):
                return False
            self._is_dirty = True
            run = self._run if one is None else None
            records = None if run is None else run.run
            if (
                run is None
                or records is None
                or not (len(records) < self._run_items and run.size + size <= self._run_bytes)
            ):
                self._push_first(request, size, one)
            else:
                records.append(request)  # it is here, by this statement
                self.pushed += 1
                self.bytes += size
                run.size += size
                self.ready_items += 1
                self.ready_bytes += size
            if self._wanted:
                self._wake_sender()
            self._is_dirty = False
        return True

    def _push_first(self, request: Any, size: int, one: BufferedRequest | None) -> None:
        if one is not None:
            self.push(one)
            return
        run = BufferedRequest(None, size, clock.now_s())
        run.run = [request]
        self.push(run)
        self._run = run

    @property
    def _is_moving(self) -> bool:
        """Whether the sink has confirmed something within a twentieth of a second. Then it may soon
        have room, which costs less than the way over the disk."""
        return clock.now_s() < self._moved_s + _MOVING_S

    def _place(
        self, one: BufferedRequest, on_durable: OnDurable | None, *, may_spill: bool = True
    ) -> bool:
        """Put a request where the state says. Return ``False`` if there is no room, or if spilling
        would have to begin and ``may_spill`` is false.

        :raises JournalSlow: too much waits for the disk at this moment.
        """
        spill, items, size = self.spill, self.items, self.bytes
        if self.is_closing:
            raise ProducerClosed("this producer is closed, and takes nothing more")
        share = self._options.share(items + 1, size + one.size)
        fits = share <= 1 or not items  # a lone one always fits
        if spill is None:
            if not fits:
                return False
        else:
            is_direct = self._level is _DIRECT and self.is_read_up
            if is_direct and share >= 1 and not may_spill:
                return False
            if not (fits and is_direct):
                return self._place_in_journal(one, on_durable)
            if spill.is_write_ahead and not (self._write_down() and self._join(one, on_durable)):
                return False
        self.push(one)
        self._wake_sender()
        if one.journal_id is not None:
            self._read_to, self._written = one.journal_id, one.seq
        if share >= 1:
            self._judge()
        elif share >= self._near and not self._is_moving:
            # Each new request takes some of the oldest along, so that nobody has to wait for all of
            # them when spilling begins.
            with suppress(JournalSlow):
                self._write_down(_TAKEN_ALONG)
        return True

    def _place_in_journal(self, one: BufferedRequest, on_durable: OnDurable | None) -> bool:
        if self._level is _DIRECT:
            self._become(_SPILLING)
        if not self._write_down() or not self._join(one, on_durable):
            return False
        if one.waiter is not None and one.journal_id is not None:
            self._waiters[one.journal_id] = one.waiter
        self._wake_reader()
        return True

    def _join(self, one: BufferedRequest, on_durable: OnDurable | None) -> bool:
        """Append a request to the journal; return ``False`` if the journal takes nothing, which the
        state then shows.

        The request's id is noted before: so after an interrupt the journal can tell whether it has
        the request.
        """
        spill = self.spill
        if spill is None:
            return True
        one.journal_id, number = spill.journal.next_id, None
        try:
            number = spill.append(one, on_durable)
        except (RequestTooLarge, JournalSlow) as exc:
            self.refused["too large"] += isinstance(exc, RequestTooLarge)
            one.journal_id = None
            raise
        one.journal_id = number
        self._is_refused = number is None
        if number is None:
            self._to_read.wake()  # it looks again when the journal takes more
        return number is not None

    def _write_down(self, most: int | None = None) -> bool:
        """Copy all requests in memory, or the ``most`` oldest, to the journal, in order. Later
        requests go only to the journal, and must come after these. Return ``False`` if the journal
        takes nothing.

        A request that cannot be written any more (too large, or changed by its owner so that the
        codec refuses it) stays in memory only, and does not stop others.

        :raises JournalSlow: the call took too long; the next call continues.
        """
        spill = self.spill
        if spill is None or self._written >= self.pushed:
            return True
        oldest = self.oldest
        self._written = self.pushed if oldest is None else max(self._written, oldest.seq - 1)
        until_s, count = clock.now_s() + _HELD_S, 0
        while self._written < self.pushed:
            seq = self._written + 1
            one = self.unsettled.get(seq)
            if one is not None and one.run is not None:
                one = self.split([one])[0]
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
        one.data = spill.serialized(one)
        if one.data is None:
            one.is_unwritable = True
            text = "request changed after it was sent, kept in memory only key=%r error=%s"
            self.news.put(partial(log.warning, text, one.key, spill.last_error))
            return True
        try:
            if not self._join(one, None):
                return False
        except RequestTooLarge:
            one.is_unwritable = True
            return True
        finally:
            one.data = None
        self._read_to = one.journal_id or self._read_to
        return True

    # -- the state, and who is woken for it --------------------------------------------------------

    def _judge(self) -> None:
        """Change the state to what memory and journal require, and wake everybody who may wait for
        the change.
        """
        share = self._options.share(self.items, self.bytes)
        self._become(
            self._level.after(share, has_journal=self.spill is not None, is_read_up=self.is_read_up)
        )
        self._wake_reader()
        self.wake_first()
        for waker in tuple(self._awaiting_end):
            waker.wake()

    @property
    def state(self) -> BufferState:
        spill = self.spill
        is_as_levels_say = self._level is _DIRECT and not (spill and spill.is_write_ahead)
        return BufferState.BLOCKED if self._is_refused and not is_as_levels_say else self._level

    def _become(self, level: BufferState) -> None:
        before, self._level = self._level, level
        if level is _SPILLING and before is not level:
            self.spilled += 1
            with suppress(JournalSlow):  # the next one that uses the journal continues it
                self._write_down()
        if level is not before:
            self._to_send.wake()  # a full memory need not linger

    def _wake_sender(self) -> None:
        is_large = self.ready_bytes >= self._options.batch_bytes
        if self._wanted and (is_large or self.ready_items >= self._wanted):
            self._to_send.wake()
            self._wanted = 0  # not before: if Ctrl-C comes between the two, the next call wakes it

    @property
    def _may_read(self) -> bool:
        """Whether memory has room for requests that are only in the journal."""
        return (
            (self._level is _DRAINING or self._is_refused)
            and not self.is_read_up
            and self._options.share(self.items, self.bytes) < 1
        )

    def _wake_reader(self) -> None:
        if self.spill is not None and self._may_read:
            self._to_read.wake()

    @property
    def first_in_line(self) -> Wake | None:
        try:
            return self.awaiting_room[0]
        except IndexError:
            return None

    def wake_first(self) -> None:
        """Wake the first caller that waits for room; who cannot be woken, because its event loop is
        closed, waits no more. This needs no lock: the journal's thread must not wait for that.
        """
        while (first := self.first_in_line) is not None and first() is False:
            self.leave_line(first)

    def leave_line(self, wake: Wake) -> None:
        with suppress(ValueError):
            self.awaiting_room.remove(wake)


class Admission:
    """Admits one request, for any thread or task that sends: waits for room, first come, first
    served, and applies the policy for a full buffer.

    Call :meth:`attempt` until it returns ``None``: again after the seconds that it returned, or
    once ``wake`` was called. Always call :meth:`leave` at the end.
    """

    def __init__(
        self,
        buffer: RequestBuffer,
        request: BufferedRequest,
        when_full: FullPolicy,
        timeout_s: float | None,
        on_durable: OnDurable | None,
        wake: Wake,
    ) -> None:
        self._buffer, self._request, self._on_durable = buffer, request, on_durable
        self._policy, self._wake = when_full, wake
        self._is_in_line = False
        self.is_placed = False
        """Once decided: ``False`` if the policy has dropped it, and its listeners know."""
        now, most_s = clock.now_s(), math.inf if timeout_s is None else timeout_s
        self._give_up_s = now + most_s
        self._spill_s = now + min(most_s, _GIVEN_S) if buffer._is_moving else now
        """When spilling may begin for it: a sink that takes some may have room in a moment."""
        self._disk_s = math.inf
        """Until when it waits for a disk that is behind, once it is."""

    def attempt(self) -> float | None:
        """Try once to admit the request. Return ``None`` once it is decided, else after how many
        seconds to try again at the latest.

        :raises BufferFull: there is no room, and the policy does not wait, or no longer.
        :raises ProducerClosed: the producer is closed, or was closed during the wait.
        :raises WouldDeadlock: the caller has interrupted its own thread in here.
        """
        return self._buffer.look(self._attempted)

    def leave(self) -> None:
        """Stop waiting for room, and wake the next caller that waits for it. This needs no lock:
        the garbage collector may call it, which may have interrupted the thread that has the lock.
        """
        if self._is_in_line:
            self._buffer.leave_line(self._wake)
            self._buffer.wake_first()

    def _attempted(self, buffer: RequestBuffer) -> float | None:
        wait_s = None
        try:
            wait_s = self._decided(buffer)
        finally:
            if wait_s is None:  # here, so that an interrupt leaves nobody in the line
                self.leave()
        return wait_s

    def _decided(self, buffer: RequestBuffer) -> float | None:
        first, now, may_wait = buffer.first_in_line, clock.now_s(), isinstance(self._policy, Block)
        if may_wait and first not in (None, self._wake) and not buffer.is_closing:
            return self._wait_in_line(now, math.inf)
        may_spill = now >= self._spill_s
        try:
            self.is_placed = buffer._place(self._request, self._on_durable, may_spill=may_spill)
        except JournalSlow as exc:
            self._disk_s = min(self._disk_s, now + _CROWDED_S)
            if now < min(self._disk_s, self._give_up_s if may_wait else math.inf):
                return _CROWDED_LOOK_S
            buffer._is_refused = True
            if buffer.spill is not None:
                buffer.spill.last_error = exc
        if self.is_placed:
            return None
        if not may_spill and buffer.spill is not None:
            return self._wait_in_line(now, self._spill_s - now)
        if may_wait:
            # Looked at again now and then: room in a journal comes when a segment is deleted.
            return self._wait_in_line(now, _ROOM_LOOK_S)
        self._drop_one(buffer)
        return None

    def _drop_one(self, buffer: RequestBuffer) -> None:
        """Apply a policy that does not wait: refuse the request, drop it, or drop the oldest until
        it fits.
        """
        if self._policy is WhenFull.RAISE:
            raise self._full()
        while self._policy is WhenFull.DROP_OLDEST and not self.is_placed and buffer.drop_oldest():
            self.is_placed = buffer._place(self._request, self._on_durable)
        if not self.is_placed:
            buffer.give_up(self._request, LossReason.NEWEST, None)

    def _wait_in_line(self, now: float, look_s: float) -> float:
        if now >= self._give_up_s:
            raise self._full()
        if not self._is_in_line:
            self._is_in_line = True
            self._buffer.wake_first()  # whose loop is closed makes way
            self._buffer.awaiting_room.append(self._wake)
        return min(look_s, self._give_up_s - now)

    def _full(self) -> BufferFull:
        buffer = self._buffer
        buffer.refused["no room"] += 1
        text = f"no room: {buffer.items} requests of {buffer.bytes} bytes in memory"
        if (spill := buffer.spill) is None or not buffer._is_refused:
            return BufferFull(f"{text}; the sink is too slow, or unreachable")
        return BufferFull(
            f"{text}, {buffer.unread} more in the journal, which takes nothing: {spill.last_error}"
        )
