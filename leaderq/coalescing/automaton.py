"""The traffic rule of one key: who may work on it, who waits, who is declined. Pure. What a
coordinator may be told otherwise acts in ``key_table.py``.

The *head* runs, and at most one other waits. ``docs/design/coalescing.md`` says why a request may
be declined.

========  =======  ======================  =====================================================
state     event    of, when                next state, and the answer
========  =======  ======================  =====================================================
Init      enqueue  anybody, at once        Process, ACCEPT: it is the head
Init      enqueue  anybody, not at once    Open, BLOCK: it waits, although nobody runs
Open      begin                            Process: the one that waits is the head
Process   enqueue  anybody, waiters = 1    Block, BLOCK: it waits
Process   enqueue  anybody, waiters = 0    Decline, Process, DECLINE
Open      enqueue  anybody                 Decline, Open, DECLINE
Block     enqueue  anybody                 Decline, Block, DECLINE
Process   dequeue  the head                Init
Block     dequeue  the head                Open: the one that waits is to begin
Open      dequeue  the one that waits      Init
Block     dequeue  the one that waits      Process
any       dequeue  anybody else            the same: nothing changes
========  =======  ======================  =====================================================

Decline is passed through within one enqueue. After the ``QueueCoordinator`` of D. Liu (2016).
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Generic, TypeVar

Owner = TypeVar("Owner")


class EnqueueOutcome(Enum):
    """The answer to an enqueue."""

    ACCEPT = "accept"
    """Nobody works on the key: run now."""
    BLOCK = "block"
    """Somebody works on the key: wait, then run."""
    DECLINE = "decline"
    """Do not run: somebody waits, begins after this request came, and does its work. (With
    ``waiters=0``: somebody ran when it came, and began before.)"""


class TrafficState(Enum):
    """The state of a key."""

    INIT = "init"
    OPEN = "open"
    """Nobody runs, and the request that waits is to begin."""
    PROCESS = "process"
    BLOCK = "block"
    DECLINE = "decline"
    """Passed through while a request is declined; no automaton is ever found in it."""


NOBODY: tuple[Any, Any] = (None, None)
_ACCEPT, _BLOCK, _DECLINE = EnqueueOutcome.ACCEPT, EnqueueOutcome.BLOCK, EnqueueOutcome.DECLINE


class TrafficAutomaton(Generic[Owner]):
    """The traffic rule of one key; see the table of the module.

    Owners are whatever the caller tells apart by ``==`` (tokens, names of znodes, numbers), never
    ``None``. An owner stands in it once.

    *Guarantees:* at most one owner is the head, and at most one waits; an event is one assignment,
    so it happens whole or not at all.
    *Not guaranteed:* anything if several threads use it at once: put a lock around it.

    :param waiters: how many may wait: 0 or 1.
    :raises ValueError: ``waiters`` is another number.
    """

    __slots__ = ("line", "waiters")

    def __init__(self, waiters: int = 1) -> None:
        if waiters not in (0, 1):
            raise ValueError(f"waiters={waiters!r}: give 0 or 1")
        self.waiters = waiters
        self.line: tuple[Owner | None, Owner | None] = NOBODY
        """The head and the one that waits. To be read only."""

    @property
    def state(self) -> TrafficState:
        """Init, Open, Process or Block."""
        head, waiter = self.line
        if head is None:
            return TrafficState.INIT if waiter is None else TrafficState.OPEN
        return TrafficState.PROCESS if waiter is None else TrafficState.BLOCK

    @property
    def head(self) -> Owner | None:
        """The owner that runs; ``None`` in Init and Open."""
        return self.line[0]

    @property
    def waiter(self) -> Owner | None:
        """The owner that waits; ``None`` in Init and Process."""
        return self.line[1]

    def enqueue(self, owner: Owner, *, at_once: bool = True) -> EnqueueOutcome:
        """Ask to work on the key. Without ``at_once``, the owner waits even if nobody runs.

        :raises ValueError: this owner runs or waits; nothing changed.
        """
        head, waiter = self.line
        if owner in (head, waiter):
            raise ValueError(f"{owner!r} runs or waits already")
        if waiter is None:
            if head is None and at_once:
                self.line = (owner, None)
                return _ACCEPT
            if self.waiters:
                self.line = (head, owner)
                return _BLOCK
        return _DECLINE

    def begin(self) -> Owner:
        """In Open: let the one that waits run; return it.

        :raises ValueError: in any other state; nothing changed.
        """
        head, waiter = self.line
        if head is not None or waiter is None:
            raise ValueError(f"nobody is to begin in state {self.state.value!r}")
        self.line = (waiter, None)
        return waiter

    def dequeue(self, owner: Owner) -> None:
        """Remove the owner, which is done or does not wait any more."""
        head, waiter = self.line
        if owner == head:
            self.line = (None, waiter)
        elif owner == waiter:
            self.line = (head, None)
