"""One request on its way in: waiting for room, and what a full buffer does to it.

All of it is done under the lock of the :class:`~leaderq.producing.buffer.RequestBuffer`, which
calls it back. Who waits is admitted first come, first served, as soon as there is room.
"""

from __future__ import annotations

from collections.abc import Callable

from leaderq.base import clock
from leaderq.errors import BufferFull, JournalSlow
from leaderq.producing.account import LossReason
from leaderq.producing.buffer import RequestBuffer
from leaderq.producing.listeners import OnDurable
from leaderq.producing.memory import BufferedRequest
from leaderq.producing.options import Block, FullPolicy, WhenFull

_LOOK_S = 0.05
_GIVEN_S = 0.02
_CROWDED_S = 1.0
_CROWDED_LOOK_S = 0.01


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
        self._buffer, self._request, self._on_durable = buffer, request, on_durable
        self._policy, self._wake = when_full, wake
        self._is_in_line = False
        self.is_placed = False
        """Once decided: ``False`` if the policy has dropped it, and its listeners know."""
        now = clock.now_s()
        self._give_up_s = None if timeout_s is None else now + timeout_s
        self._spill_s = now
        """When spilling may begin for it: a sink that takes some may have room in a moment."""
        if buffer.is_moving:
            self._spill_s += _GIVEN_S if timeout_s is None else min(timeout_s, _GIVEN_S)
        self._crowded_until_s: float | None = None

    def attempt(self) -> float | None:
        """Try once; return ``None`` if it is decided, else how long to wait at most.

        :raises BufferFull: no room, and the policy is to wait no longer, or not at all.
        :raises ProducerClosed: closed, also meanwhile.
        :raises WouldDeadlock: it interrupts its own thread in here.
        """
        return self._buffer.look(self._attempted)

    def leave(self) -> None:
        if self._is_in_line:
            self._buffer.leave_line(self._wake)

    def _attempted(self, buffer: RequestBuffer) -> float | None:
        line = buffer.awaiting_room
        is_behind = bool(line) and line[0] is not self._wake and not buffer.is_closing
        if is_behind and isinstance(self._policy, Block):
            return self._wait_in_line(None)
        left_s = self._spill_s - clock.now_s()
        try:
            self.is_placed = buffer.place(self._request, self._on_durable, may_spill=left_s <= 0.0)
        except JournalSlow as exc:
            if (wait_s := self._crowded_s()) is not None:
                return wait_s
            buffer.note_full(exc)
        if self.is_placed:
            return None
        if left_s > 0.0 and buffer.spill is not None:
            return self._wait_in_line(left_s)
        if isinstance(self._policy, Block):
            # Looked at again now and then: room in a journal comes when a segment is deleted.
            return self._wait_in_line(_LOOK_S)
        if self._policy is WhenFull.RAISE:
            raise self._full()
        self._drop()
        return None

    def _crowded_s(self) -> float | None:
        """How long to wait for the disk; ``None``: no longer."""
        now = clock.now_s()
        if self._crowded_until_s is None:
            self._crowded_until_s = now + _CROWDED_S
            if isinstance(self._policy, Block) and self._give_up_s is not None:
                self._crowded_until_s = max(now, min(self._crowded_until_s, self._give_up_s))
        if now < self._crowded_until_s:
            return _CROWDED_LOOK_S
        self._crowded_until_s = None
        return None

    def _drop(self) -> None:
        """Drop the oldest until it fits, or drop the new one."""
        buffer = self._buffer
        while self._policy is WhenFull.DROP_OLDEST and not self.is_placed:
            if (oldest := buffer.memory.withdraw_oldest()) is None:
                break
            buffer.give_up(oldest, LossReason.OLDEST, None)
            self.is_placed = buffer.place(self._request, self._on_durable)
        if not self.is_placed:
            buffer.give_up(self._request, LossReason.NEWEST, None)

    def _wait_in_line(self, look_s: float | None) -> float:
        left_s = float("inf") if self._give_up_s is None else self._give_up_s - clock.now_s()
        if left_s <= 0:
            raise self._full()
        if not self._is_in_line:
            self._is_in_line = True
            self._buffer.awaiting_room.append(self._wake)
        return left_s if look_s is None else min(look_s, left_s)

    def _full(self) -> BufferFull:
        buffer, memory = self._buffer, self._buffer.memory
        buffer.refused["no room"] += 1
        text = f"no room: {len(memory)} requests of {memory.bytes} bytes in memory"
        if (spill := buffer.spill) is None or spill.has_room(0):
            return BufferFull(f"{text}; the sink is too slow, or unreachable")
        return BufferFull(
            f"{text}, {buffer.unread} more in the journal, which takes nothing: {spill.last_error}"
        )
