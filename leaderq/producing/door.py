"""How a request comes in: where the state says, and by the policy for a full buffer if there is no room.

With a journal, what is *oldest* is dropped by whole segments, since only these give room on the disk.
"""

from __future__ import annotations

from collections.abc import Generator

from leaderq.clock import now_s
from leaderq.errors import BufferFull, JournalSlow, ProducerClosed, RequestTooLarge
from leaderq.producing.account import Reason
from leaderq.producing.entry import Entry
from leaderq.producing.journal.waiting import Signal
from leaderq.producing.spill import OnDurable, Spill
from leaderq.producing.states import Input, State, step
from leaderq.producing.stock import Stock
from leaderq.producing.when_full import Block, FullPolicy, WhenFull

_LOOK_S = 0.05
_CROWDED_S = 1.0
_CROWDED_LOOK_S = 0.01
_PIECE = 500
_DELETING_S = 0.005
_DROPPING_S = 5.0

Steps = Generator[float, None, bool]
"""Done under the lock of the stock, but for the pauses between them: for room, and no longer than the seconds that are
yielded. Gives whether the request was placed."""
Pause = tuple[Signal, float]


class Door:
    """The way into ``stock``; for all threads that send."""

    def __init__(self, stock: Stock, spill: Spill | None, when_full: FullPolicy, max_waiters: int) -> None:
        self._stock = stock
        self._spill = spill
        self._when_full = when_full
        self._max_waiters = max_waiters

    def admit(self, entry: Entry, timeout_s: float | None, on_durable: OnDurable | None = None) -> bool:
        """Take a request; ``False``: the policy has dropped it, which its account and listeners know.

        ``timeout_s`` is that of a call that may wait.

        :raises BufferFull: no room, and the policy is to wait no longer, or not at all.
        :raises ProducerClosed: closed, also meanwhile.
        """
        stock = self._stock
        with stock.lock:
            try:
                steps = None if self._place(entry, on_durable) else self._find_room(entry, timeout_s, on_durable)
            except JournalSlow:
                steps = self._place_late(entry, timeout_s, on_durable)
            reached = steps is None or self._step(steps)
        is_placed = steps is None or self._walked(steps, reached)
        stock.teller.tell()
        return is_placed

    def _step(self, steps: Steps) -> bool | Pause:
        """Under the lock: take the next; gives what they led to, or the pause before another."""
        try:
            most_s = next(steps)
        except StopIteration as end:
            return bool(end.value)
        return self._stock.room.join(), most_s

    def _walked(self, steps: Steps, reached: bool | Pause) -> bool:
        """Take all steps that are left, and others have the lock in each pause; gives what they led to."""
        stock = self._stock
        while not isinstance(reached, bool):
            room, most_s = reached
            room.wait(most_s)
            with stock.lock:
                stock.room.leave(room)
                reached = self._step(steps)
        return reached

    def _place_late(self, entry: Entry, timeout_s: float | None, on_durable: OnDurable | None) -> Steps:
        """The journal was too slow at first."""
        is_placed = yield from self._place_soon(entry, on_durable, _CROWDED_S)
        return is_placed or (yield from self._find_room(entry, timeout_s, on_durable))

    def _place_soon(self, entry: Entry, on_durable: OnDurable | None, most_s: float) -> Steps:
        """As :meth:`_place`, while the disk is behind with what the journal has."""
        stock, give_up_s = self._stock, now_s() + most_s
        while True:
            try:
                return self._place(entry, on_durable)
            except JournalSlow as exc:
                if now_s() >= give_up_s:
                    if self._spill is not None:
                        self._spill.last_error = exc
                    stock.turn(step(stock.state, Input.JOURNAL_FULL, has_journal=True))
                    return False
            yield _CROWDED_LOOK_S

    def _place(self, entry: Entry, on_durable: OnDurable | None) -> bool:
        """Put it where the state says; ``False``: there is no room.

        :raises JournalSlow: see :meth:`_place_soon`.
        """
        stock, memory = self._stock, self._stock.memory
        if stock.is_closing:
            raise ProducerClosed("this producer is closed, and takes nothing more")
        if stock.state is State.BLOCKED:
            stock.look_for_room(entry.size)
        if stock.state is State.DIRECT and not stock.marks.fits(len(memory), memory.bytes, entry.size):
            stock.turn(step(State.DIRECT, Input.MEMORY_HIGH, has_journal=self._spill is not None))
        if stock.state is State.BLOCKED:
            return False
        if stock.state is not State.DIRECT:
            return self._place_in_journal(entry, on_durable)
        if self._spill is not None and self._spill.is_write_ahead and not self._write(entry, on_durable):
            return False
        stock.accept_direct(entry)
        return True

    def _place_in_journal(self, entry: Entry, on_durable: OnDurable | None) -> bool:
        stock = self._stock
        if entry.waiter is not None and stock.unread.waiting >= self._max_waiters:
            if isinstance(self._when_full, Block):
                return False
            stock.account.refused["too many futures"] += 1
            raise BufferFull(
                f"{stock.unread.waiting} futures wait for requests in the journal, the most that are kept (max_waiters)"
            )
        if stock.must_write_down and not stock.write_down():
            stock.turn(step(stock.state, Input.JOURNAL_FULL, has_journal=True))
            return False
        if not self._write(entry, on_durable):
            return False
        stock.accept_spilled(entry)
        return True

    def _write(self, entry: Entry, on_durable: OnDurable | None) -> bool:
        """Append it to the journal; ``False``: that is full, and the state is now that of it."""
        stock, spill = self._stock, self._spill
        if spill is None:
            return True
        try:
            is_taken = spill.append(entry, on_durable)
        except RequestTooLarge:
            stock.account.refused["too large"] += 1
            raise
        if not is_taken:
            stock.turn(step(stock.state, Input.JOURNAL_FULL, has_journal=True))
        return is_taken

    # -- no room --------------------------------------------------------------------------------------------------------

    def _find_room(self, entry: Entry, timeout_s: float | None, on_durable: OnDurable | None) -> Steps:
        policy = self._when_full
        if policy is WhenFull.DROP_NEWEST:
            return self._drop_newest(entry)
        if policy is WhenFull.DROP_OLDEST:
            return (yield from self._place_by_dropping(entry, on_durable)) or self._drop_newest(entry)
        if isinstance(policy, Block):
            wait_s = policy.timeout_s if timeout_s is None else timeout_s
            if (yield from self._wait_for_room(entry, wait_s, on_durable)):
                return True
        self._stock.account.refused["no room"] += 1
        raise BufferFull(self._no_room())

    def _wait_for_room(self, entry: Entry, wait_s: float | None, on_durable: OnDurable | None) -> Steps:
        deadline = None if wait_s is None else now_s() + wait_s
        while deadline is None or now_s() < deadline:
            # Looked at again now and then: room in a journal comes without a word, when a segment is deleted.
            yield _LOOK_S if deadline is None else max(0.0, min(_LOOK_S, deadline - now_s()))
            left_s = _CROWDED_S if deadline is None else min(_CROWDED_S, deadline - now_s())
            if (yield from self._place_soon(entry, on_durable, left_s)):
                return True
        return False

    def _no_room(self) -> str:
        stock, memory = self._stock, self._stock.memory
        text = f"no room: {len(memory)} requests of {memory.bytes} bytes in memory"
        if self._spill is not None:
            text += f", {stock.unread.count} more in the journal, which takes no more{self._spill.why_full}"
        return f"{text}; the sink is too slow, or away"

    def _drop_newest(self, entry: Entry) -> bool:
        self._stock.account.accept()
        self._stock.give_up(entry, Reason.NEWEST, None)
        return False

    def _place_by_dropping(self, entry: Entry, on_durable: OnDurable | None) -> Steps:
        """Give up what is oldest until there is room; ``False``: there is nothing that could be given up, or no room
        comes of it."""
        stock = self._stock
        give_up_s = now_s() + _DROPPING_S
        while now_s() < give_up_s:
            is_dropping = self._drop_one() if self._spill is None else (yield from self._drop_piece(self._spill))
            stock.judge()
            if (yield from self._place_soon(entry, on_durable, _CROWDED_S)):
                return True
            if not is_dropping:
                return False
        return False

    def _drop_one(self) -> bool:
        oldest = self._stock.memory.withdraw_oldest()
        if oldest is not None:
            self._stock.give_up(oldest, Reason.OLDEST, None)
        return oldest is not None

    def _drop_piece(self, spill: Spill) -> Steps:
        stock = self._stock
        for count in range(_PIECE):
            oldest = stock.memory.withdraw_oldest()
            if oldest is None:
                stock.drop_unread(_PIECE - count)
                break
            if oldest.is_stored:
                stock.unread.acks.append(oldest.journal_id or 0)
            stock.give_up(oldest, Reason.OLDEST, None)
        spill.ack(stock.unread.take_acks())
        yield _DELETING_S  # the journal deletes a segment on its own thread
        return True
