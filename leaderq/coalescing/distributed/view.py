"""What the two slots of a key say: who is the head, who waits, and where that leaves somebody (pure).

The head is whoever's slot is older: of two slots that are taken, the one with the lower ``czxid``. So the one that waits
becomes the head by nothing but the deletion of the other slot, no write of its own is needed, and a newcomer, whose slot
is younger, cannot overtake it. ``czxid`` never falls while the ensemble lives, and so is the fencing number too.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from leaderq.coalescing.automaton import TrafficAutomaton, TrafficState
from leaderq.errors import LeaderqError, NoNode


@dataclass(frozen=True, slots=True)
class Holder:
    """Who has a slot. ``number``: its fencing number; ``session``: the ZooKeeper session that the slot belongs to."""

    slot: int
    token: str
    number: int
    session: int


@dataclass(frozen=True, slots=True)
class KeyView:
    """A key at a moment that is over already. ``head`` and ``waiter`` are ``None`` where nobody is."""

    head: Holder | None
    waiter: Holder | None

    @property
    def state(self) -> TrafficState:
        """Init, Process or Block."""
        return TrafficAutomaton(line=[one for one in (self.head, self.waiter) if one is not None]).state


class Standing(Enum):
    """Where somebody stands at a key."""

    HEAD = "head"
    WAITS = "waits"
    OUTSIDE = "outside"
    """It has no slot, and one is free."""
    DECLINED = "declined"
    """It has no slot, and both were taken at one moment."""
    UNCLEAR = "unclear"
    """It has no slot, and the slots changed while they were looked at: nothing is certain, look again."""


def holder(slot: int, read: Any) -> Holder | None:
    """Who has the slot, from what reading it gave.

    :raises LeaderqError: it could not be read.
    """
    if isinstance(read, NoNode):
        return None
    if isinstance(read, LeaderqError):
        raise read
    data, stat = read
    return Holder(slot, data.decode("utf-8", "replace"), stat.czxid, stat.ephemeral_owner)


def view(slots: Sequence[Holder | None]) -> KeyView:
    """The key whose slots are these."""
    taken = sorted((one for one in slots if one is not None), key=lambda one: one.number)
    return KeyView(taken[0] if taken else None, taken[1] if len(taken) > 1 else None)


def find(token: str, slots: Sequence[Holder | None]) -> Holder | None:
    """The slot of ``token``, if it has one."""
    return next((one for one in slots if one is not None and one.token == token), None)


def judge(token: str, first: Holder | None, second: Holder | None, again: Holder | None) -> tuple[Standing, int]:
    """Where ``token`` stands, and its slot or the one to try next, from three readings in this order: slot 0, slot 1,
    slot 0 again.

    The readings may be of different moments. Whoever is declined relies on somebody who waits and begins later, so that
    is said only if slot 0 had one and the same owner before and after slot 1 was read: then both were taken at that
    moment.
    """
    mine = find(token, (first, second, again))
    if mine is not None:
        other = (again, second)[1 - mine.slot]
        return (Standing.HEAD if other is None or other.number > mine.number else Standing.WAITS), mine.slot
    if again is None:
        return Standing.OUTSIDE, 0
    if second is None:
        return Standing.OUTSIDE, 1
    if first is not None and first.number == again.number:
        return Standing.DECLINED, 0
    return Standing.UNCLEAR, 0


def described(*, host: str, pid: int, since: float) -> bytes:
    """What stands in a token's znode, for operators."""
    return json.dumps({"host": host, "pid": pid, "since": round(since, 3)}).encode()
