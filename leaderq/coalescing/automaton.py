"""The traffic rule of one key: who may work on it, who waits, who is declined. Pure.

The *head* runs, the *tails* wait (one, unless told otherwise). Whatever the order of events, at
most one owner is the head, and at most ``waiters`` owners wait. ``docs/design/coalescing.md`` says
why a request may be declined.

========  =======  ========================  ===================  =================================
state     event    of, when                  next state           answer
========  =======  ========================  ===================  =================================
Init      enqueue  anybody                   Process              ACCEPT: it is the head
Process   enqueue  anybody, waiters > 0      Block                BLOCK: it waits
Process   enqueue  anybody, waiters = 0      Decline, Process     DECLINE
Block     enqueue  anybody, a place is free  Block                BLOCK: it waits, behind the rest
Block     enqueue  anybody, no place is      Decline, Block       DECLINE
                   free
Process   dequeue  the head                  Init                 ENDED
Block     dequeue  the head, one waits       Process              HANDED_OVER: that one is the head
Block     dequeue  the head, several wait    Block                HANDED_OVER: who waited longest
Block     dequeue  the only one that waits   Process              WITHDRAWN: it waits no more
Block     dequeue  one of several that wait  Block                WITHDRAWN: it waits no more
any       dequeue  anybody else              the same             UNKNOWN: nothing changes
========  =======  ========================  ===================  =================================

Decline is passed through within one enqueue. With an overflow rule other than "decline the
newcomer", ``displace`` declines the one that has waited longest, and the newcomer waits.

After the ``QueueCoordinator`` of D. Liu (2016).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Generic, TypeVar

Owner = TypeVar("Owner")


class EnqueueOutcome(Enum):
    """The answer to an enqueue."""

    ACCEPT = "accept"
    """Nobody works on the key: run now."""
    BLOCK = "block"
    """Somebody works on the key: wait, then run. The run begins after the request, so it sees all
    that the request wanted seen."""
    DECLINE = "decline"
    """Do not run. See :class:`Refusal` for what makes that safe."""


class Refusal(Enum):
    """Why a request was declined, and by whom it is covered."""

    FULL = "full"
    """All waiting places are taken. The waiter begins after this request came, and does its work.
    With no waiting places at all, somebody ran when this request came, and began before.
    """
    REPLACED = "replaced"
    """It waited, and a newer request took its place, which begins later still."""
    MERGED = "merged"
    """Its value was merged into that of the newest request that waits."""
    BUSY = "busy"
    """It asked not to wait, and would have had to. Nobody covers it unless somebody waits."""


class TrafficState(Enum):
    """The state of a key."""

    INIT = "init"
    PROCESS = "process"
    BLOCK = "block"
    DECLINE = "decline"
    """Passed through while a request is declined; no automaton is ever found in it."""


class Departure(Enum):
    """The answer to a dequeue."""

    ENDED = "ended"
    HANDED_OVER = "handed over"
    WITHDRAWN = "withdrawn"
    UNKNOWN = "unknown"


_STATES = (TrafficState.INIT, TrafficState.PROCESS, TrafficState.BLOCK)
_ACCEPT, _BLOCK, _DECLINE = EnqueueOutcome.ACCEPT, EnqueueOutcome.BLOCK, EnqueueOutcome.DECLINE
_ENDED, _HANDED_OVER = Departure.ENDED, Departure.HANDED_OVER
_WITHDRAWN, _UNKNOWN = Departure.WITHDRAWN, Departure.UNKNOWN


class TrafficAutomaton(Generic[Owner]):
    """The traffic rule of one key; see the table of the module.

    Owners are whatever the caller tells apart by ``==`` (tokens, names of znodes, numbers), never
    ``None``. An owner stands in it once.

    *Guarantees:* the two uniquenesses above; those who wait become the head in the order in which
    they came; an event is one assignment, so it happens whole or not at all.
    *Not guaranteed:* anything under threads: whoever shares one puts a lock around it.

    :param waiters: how many may wait: 0, 1 (the coordinator's default) or more.
    :param line: who runs already, and behind it who waits already, oldest first.
    :raises ValueError: ``waiters`` is negative, or more wait already than may.
    """

    __slots__ = ("line", "waiters")

    def __init__(self, waiters: int = 1, *, line: Iterable[Owner] = ()) -> None:
        self.waiters = waiters
        """How many may wait."""
        self.line: tuple[Owner, ...] = tuple(line)
        """The head, and behind it those who wait, in order. To be read only."""
        if waiters < 0 or len(self.line) > waiters + 1:
            raise ValueError(
                f"an automaton of {waiters} waiters cannot have {len(self.line)} owners in line"
            )

    @property
    def state(self) -> TrafficState:
        """Init, Process or Block."""
        return _STATES[min(len(self.line), 2)]

    @property
    def head(self) -> Owner | None:
        """The owner that runs; ``None`` in Init."""
        return self.line[0] if self.line else None

    @property
    def waiting(self) -> tuple[Owner, ...]:
        """The owners that wait, the next head first."""
        return self.line[1:]

    def enqueue(self, owner: Owner) -> EnqueueOutcome:
        """Ask to work on the key.

        :raises ValueError: this very owner runs or waits already; nothing changed.
        """
        line = self.line
        if not line:
            self.line = (owner,)
            return _ACCEPT
        if owner in line:
            raise ValueError(f"{owner!r} runs or waits already")
        if len(line) > self.waiters:
            return _DECLINE
        self.line = (*line, owner)
        return _BLOCK

    def displace(self, owner: Owner) -> Owner:
        """Let ``owner`` wait, behind the others, in place of the one that has waited longest;
        return that one, which is declined.

        :raises ValueError: nobody waits, or this very owner runs or waits already; nothing changed.
        """
        line = self.line
        if len(line) < 2 or owner in line:
            raise ValueError(f"{owner!r} can displace nobody")
        self.line = (line[0], *line[2:], owner)
        return line[1]

    def dequeue(self, owner: Owner) -> Departure:
        """The owner is done, or waits no more. After HANDED_OVER, ``head`` runs now."""
        line = self.line
        if owner not in line:
            return _UNKNOWN
        if len(line) == 1:
            self.line = ()
            return _ENDED
        if owner == line[0]:
            self.line = line[1:]
            return _HANDED_OVER
        where = line.index(owner)
        self.line = line[:where] + line[where + 1 :]
        return _WITHDRAWN

    def __repr__(self) -> str:
        return (
            f"<TrafficAutomaton {self.state.value}, {len(self.line)} of {self.waiters + 1} in line>"
        )
