"""Where a request goes that is accepted now. Pure: no thread, no clock, no file.

========  =========================  ====================  =========================================
state     a new request goes         the journal is read   left when
========  =========================  ====================  =========================================
DIRECT    into memory                no: memory holds all  memory comes to the high mark: SPILLING,
                                     that is in it         or, without a journal, BLOCKED
SPILLING  into the journal only      no                    memory falls to the low mark: DRAINING
DRAINING  into the journal only      yes, in order         read up: DIRECT; high mark: SPILLING
BLOCKED   nowhere: the policy for a  yes, if there is one  it has room again: SPILLING, DRAINING or
          full buffer decides                              DIRECT
========  =========================  ====================  =========================================

So all in memory is older than all that is only in the journal, whatever happens, and order is kept
across the two. Between the low and the high mark the state stays what it is: it does not flutter.
With write-ahead, "into memory" means into the journal first.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class BufferState(Enum):
    """See the module."""

    DIRECT = "direct"
    SPILLING = "spilling"
    DRAINING = "draining"
    BLOCKED = "blocked"


class BufferEvent(Enum):
    """What happened."""

    MEMORY_HIGH = "memory has come to the high mark"
    MEMORY_LOW = "memory has fallen to the low mark"
    READ_UP = "all of the journal is in memory"
    JOURNAL_FULL = "the journal takes nothing more"
    JOURNAL_ROOM = "the journal has room again"


_WITH_JOURNAL = {
    (BufferState.DIRECT, BufferEvent.MEMORY_HIGH): BufferState.SPILLING,
    (BufferState.DIRECT, BufferEvent.JOURNAL_FULL): BufferState.BLOCKED,  # of a write-ahead
    (BufferState.SPILLING, BufferEvent.MEMORY_LOW): BufferState.DRAINING,
    (BufferState.SPILLING, BufferEvent.JOURNAL_FULL): BufferState.BLOCKED,
    (BufferState.DRAINING, BufferEvent.MEMORY_HIGH): BufferState.SPILLING,
    (BufferState.DRAINING, BufferEvent.READ_UP): BufferState.DIRECT,
    (BufferState.DRAINING, BufferEvent.JOURNAL_FULL): BufferState.BLOCKED,
    (BufferState.BLOCKED, BufferEvent.JOURNAL_ROOM): BufferState.SPILLING,
}
_WITHOUT = {
    (BufferState.DIRECT, BufferEvent.MEMORY_HIGH): BufferState.BLOCKED,
    (BufferState.BLOCKED, BufferEvent.MEMORY_LOW): BufferState.DIRECT,
}


def step(state: BufferState, happened: BufferEvent, *, has_journal: bool) -> BufferState:
    """The state after ``happened``; the same where the table above says nothing."""
    return (_WITH_JOURNAL if has_journal else _WITHOUT).get((state, happened), state)


@dataclass(frozen=True)
class Watermarks:
    """Bounds of the memory: items and bytes, and the shares of them at which spilling begins and
    the journal is read again."""

    max_items: int
    max_bytes: int
    high: float = 1.0
    low: float = 0.5

    def is_high(self, items: int, size: int) -> bool:
        return items >= self.high * self.max_items or size >= self.high * self.max_bytes

    def is_near(self, items: int, size: int) -> bool:
        """Whether one of the two has come to three quarters of the high mark."""
        near = 0.75 * self.high
        return items >= near * self.max_items or size >= near * self.max_bytes

    def is_low(self, items: int, size: int) -> bool:
        return items <= self.low * self.max_items and size <= self.low * self.max_bytes

    def fits(self, items: int, size: int, more: int) -> bool:
        """Whether one more request of ``more`` bytes stays within the bounds; a lone one always
        does."""
        return items == 0 or (items < self.max_items and size + more <= self.max_bytes)


def settled(
    state: BufferState,
    marks: Watermarks,
    items: int,
    size: int,
    unread: int,
    *,
    has_journal: bool,
) -> BufferState:
    """The state that these levels lead to: what is in memory, and how many requests are in the
    journal only. Never more than a few steps, since no two inputs undo each other."""
    is_high = marks.is_high(items, size)
    if state is BufferState.SPILLING and marks.is_low(items, size):
        state = step(state, BufferEvent.MEMORY_LOW, has_journal=has_journal)
    if state is BufferState.DRAINING and unread == 0:
        state = step(state, BufferEvent.READ_UP, has_journal=has_journal)
    # Without a journal to drain first, any room will do: waiting for the low mark would only let
    # the sink run dry.
    if state is BufferState.BLOCKED and not is_high:
        state = step(state, BufferEvent.MEMORY_LOW, has_journal=has_journal)
    return step(state, BufferEvent.MEMORY_HIGH, has_journal=has_journal) if is_high else state
