"""One request on its way in: waiting for room, and what a full buffer does to it.

All of it is done under the lock of the :class:`~leaderq.producing.buffer.RequestBuffer`, which
calls it back. Who waits is admitted first come, first served, as soon as there is room.
"""

from __future__ import annotations

from collections.abc import Callable

from leaderq import clock
from leaderq.errors import BufferFull, JournalSlow
from leaderq.producing.account import BufferEvent, LossReason
from leaderq.producing.buffer import RequestBuffer
from leaderq.producing.memory import BufferedRequest, JournalCopy
from leaderq.producing.options import Block, FullPolicy, WhenFull
from leaderq.producing.spill import OnDurable, Spill
from leaderq.threads import Waiter

_LOOK_S = 0.05
_CROWDED_S = 1.0
_CROWDED_LOOK_S = 0.01
_DELETING_S = 0.005
_DELETED_S = 1.0
_DROPPING_S = 5.0
_PIECE = 500
_PIECE_BYTES = 1 << 20


class Admission:
    """One request on its way in, for any thread or task that sends.

    :meth:`attempt` is called again, after the seconds it returns or a call of ``wake``, until it
    returns ``None``; :meth:`leave` in any case at the end.
    """

    def __init__(
        self,
        buffer: RequestBuffer,
        request: BufferedRequest,
        when_full: FullPolicy,
        timeout_s: float | None,
        on_durable: OnDurable | None,
        wake: Callable[[], object],
    ) -> None:
        self._wake = wake
        self._waiter: Waiter[Callable[[], object]] | None = None
        self.is_placed = False
        """Once decided: ``False`` if the policy has dropped it, and its listeners know."""
        self._buffer, self._request, self._on_durable = buffer, request, on_durable
        self._policy = when_full
        self._give_up_s = None if timeout_s is None else clock.now_s() + timeout_s
        self._crowded_until_s: float | None = None
        self._dropping_until_s: float | None = None
        self._room_by_s = 0.0  # by then dropped requests have made room, if they make any

    def attempt(self) -> float | None:
        """Try once; return ``None`` if it is decided, else how long to wait at most.

        :raises BufferFull: no room, and the policy is to wait no longer, or not at all.
        :raises ProducerClosed: closed, also meanwhile.
        :raises WouldDeadlock: it interrupts its own thread in here.
        """
        return self._buffer.admit(self._attempted)

    def leave(self) -> None:
        if self._waiter is not None:
            self._buffer.leave_line(self._waiter)

    def _attempted(self) -> float | None:
        buffer, waiters = self._buffer, self._buffer.awaiting_room.waiters
        if waiters and waiters[0] is not self._waiter and isinstance(self._policy, Block):
            return self._wait_in_line(None)
        try:
            self.is_placed = buffer.place(self._request, self._on_durable)
        except JournalSlow as exc:
            if (wait_s := self._crowded_s(exc)) is not None:
                return wait_s
        if self.is_placed:
            return None
        return self._without_room()

    def _crowded_s(self, exc: JournalSlow) -> float | None:
        """How long to wait for the disk; ``None``: no longer."""
        buffer, now = self._buffer, clock.now_s()
        if self._crowded_until_s is None:
            self._crowded_until_s = now + _CROWDED_S
            if isinstance(self._policy, Block) and self._give_up_s is not None:
                self._crowded_until_s = max(now, min(self._crowded_until_s, self._give_up_s))
        if now < self._crowded_until_s:
            return _CROWDED_LOOK_S
        self._crowded_until_s = None
        if buffer.spill is not None:
            buffer.spill.last_error = exc
        buffer.turn(BufferEvent.JOURNAL_FULL)
        return None

    def _without_room(self) -> float | None:
        buffer = self._buffer
        if isinstance(self._policy, Block):
            # Looked at again now and then: room in a journal comes when a segment is deleted.
            return self._wait_in_line(_LOOK_S)
        if self._policy is WhenFull.RAISE:
            raise self._full()
        if self._policy is WhenFull.DROP_OLDEST:
            now = clock.now_s()
            self._dropping_until_s = self._dropping_until_s or now + _DROPPING_S
            if now < self._dropping_until_s and self._drop_oldest():
                self._room_by_s = now + _DELETED_S
            if now < self._room_by_s:
                return 0.0 if buffer.spill is None else _DELETING_S
        buffer.account.accept()
        buffer.give_up(self._request, LossReason.NEWEST, None)
        return None

    def _wait_in_line(self, look_s: float | None) -> float:
        left_s = float("inf") if self._give_up_s is None else self._give_up_s - clock.now_s()
        if left_s <= 0:
            raise self._full()
        if self._waiter is None:
            self._waiter = self._buffer.awaiting_room.join(self._wake, self._wake)
        return left_s if look_s is None else min(look_s, left_s)

    def _full(self) -> BufferFull:
        buffer, memory = self._buffer, self._buffer.memory
        buffer.account.refused["no room"] += 1
        text = f"no room: {len(memory)} requests of {memory.bytes} bytes in memory"
        if buffer.spill is not None:
            text += f", {buffer.backlog.count} more in the journal, which takes no more"
            if (error := buffer.spill.last_error) is not None:
                text += f" ({error})"
        return BufferFull(f"{text}; the sink is too slow, or unreachable")

    def _drop_oldest(self) -> bool:
        """Drop the oldest requests; return whether any were, or may be in a moment. With a journal
        many at a time, because only whole segments make room on the disk.
        """
        buffer, spill = self._buffer, self._buffer.spill
        before = buffer.account.gone[LossReason.OLDEST]
        most = 1 if spill is None else _PIECE
        for count in range(most):
            oldest = buffer.memory.withdraw_oldest()
            if oldest is None:
                if spill is not None:
                    self._drop_unread(spill, most - count)
                break
            if oldest.copy is JournalCopy.STORED and oldest.journal_id is not None:
                buffer.backlog.acks.append(oldest.journal_id)
            buffer.give_up(oldest, LossReason.OLDEST, None)
        if spill is not None:
            spill.ack(buffer.backlog.take_acks())
        buffer.judge()
        is_coming = buffer.backlog.is_read or buffer.backlog.is_written
        return is_coming or buffer.account.gone[LossReason.OLDEST] > before

    def _drop_unread(self, spill: Spill, most: int) -> None:
        """Drop the oldest in the journal, reading under the lock: the last resort for room."""
        buffer, backlog = self._buffer, self._buffer.backlog
        if backlog.is_read or not backlog.stored:
            return
        piece = spill.read(backlog.up_to, backlog.noted, most, _PIECE_BYTES)
        for one in buffer.taken_out(piece, backlog.stored):
            backlog.acks.append(one.journal_id or 0)
            buffer.give_up(one, LossReason.OLDEST, None)
