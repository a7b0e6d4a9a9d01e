"""What one consumer knows of one shard, and what it would deliver next (pure).

A hint: the servers decide when something is claimed. It learns from a listing of ``messages`` and
``rests``, and from what their watches tell afterwards, in any order and more than once. From time
to time it learns the names in ``claims``. Not thread-safe.

Each name waits (see :class:`~leaderq.engine.due_order.DueOrder`), is **leased** (somebody has it,
as far as is known: this consumer, or another), or is **in hand** (this one is about to claim it).

Due times (``_ms``) are calendar times. A lease is a *duration* (``_s``): it runs on this consumer's
own clock, from when the consumer first saw this version of the claim.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from leaderq.dyno.layout import NO_GROUP, MessageName, RestName, parsed_name, parsed_rest, rest_name
from leaderq.engine.due_order import DueOrder, Entry

SETTLING_S = 1.0
"""How long a known lease may be missing in a listing, and is not looked at."""
LONGEST_S = 10.0
"""How often at least a lease is looked at: it may end early."""
SLOWER = 25 / 24
"""By how much longer a lease lasts for those who wait for its end: clocks may differ by 4 %."""


class Choice(NamedTuple):
    """A message that may be claimed. ``version``: that of its claim; ``None`` if it was never
    delivered. ``rest``: the marker of its rest, if it rests.
    """

    name: str
    version: int | None = None
    rest: str | None = None

    @property
    def is_held(self) -> bool:
        """Whether somebody has it, or had when this was read."""
        return self.version is not None and self.rest is None


@dataclass(slots=True)
class KnownLease:
    """What is known of a lease. ``since_s``: since when its claim has had this ``version`` at least
    (``None``: version not known); ``look_s``: when to look whether the lease is over. Each delivery
    has its own, so looking at an earlier delivery's lease does not put off the look at the next.
    """

    since_s: float
    look_s: float
    version: int | None = None
    is_over: bool = False
    """Then anybody may have it."""


class ShardIndex(DueOrder):
    """The messages of one shard, in the order of delivery; see the module. ``ageing_s``: seconds
    after which a message goes before one with the next better priority that has just become due;
    ``None``: priorities are strict.
    """

    def __init__(self, ageing_s: float | None = None) -> None:
        super().__init__()
        self.ageing_s = ageing_s
        """Counts for everything that is listed from now on."""
        self._names: dict[str, MessageName] = {}
        self._rests: dict[str, RestName] = {}
        self._leased: dict[str, KnownLease] = {}
        self._groups: dict[str, list[tuple[int, str]]] = {}
        self._waiting: dict[str, list[tuple[int, str]]] = {}  # those due, the most urgent first

    def __len__(self) -> int:
        return len(self._names)

    def replace(self, names: Iterable[str], markers: Iterable[str], now_ms: int) -> None:
        """Replace everything by a new listing, of any length. Messages in hand stay so if
        they are listed, and those that are leased unless they rest now.
        """
        parsed = {name: found for name in names if (found := parsed_name(name)) is not None}
        self._names = parsed
        self._rests = {
            rest.name: rest for marker in markers if (rest := parsed_rest(marker)) is not None
        }
        self._leased = {
            name: known
            for name, known in self._leased.items()
            if name in parsed and name not in self._rests
        }
        self.in_hand, self._groups, self._waiting = self.in_hand & parsed.keys(), {}, {}
        for name, found in parsed.items():
            if found.group != NO_GROUP:
                self._groups.setdefault(found.group, []).append((found.sequence, name))
        for group in self._groups.values():
            heapq.heapify(group)
        self._fill(parsed, now_ms)

    def created(self, name: str) -> None:
        parsed = parsed_name(name)
        if parsed is None or name in self._names:
            return
        self._names[name] = parsed
        if parsed.group != NO_GROUP:
            heapq.heappush(self._groups.setdefault(parsed.group, []), (parsed.sequence, name))
        self._schedule(name)

    def deleted(self, name: str) -> None:
        parsed = self._names.pop(name, None)
        if parsed is None:
            return
        self._rests.pop(name, None)
        self._leased.pop(name, None)
        self.in_hand.discard(name)
        if parsed.group != NO_GROUP and (head := self._head_of(parsed.group)) is not None:
            self._schedule(head)

    def rested(self, marker: str) -> None:
        rest = parsed_rest(marker)
        if rest is None or (
            (known := self._rests.get(rest.name)) is not None and known.version >= rest.version
        ):
            return
        self._rests[rest.name] = rest
        self._leased.pop(rest.name, None)
        self.in_hand.discard(rest.name)
        if rest.name in self._names:
            self._schedule(rest.name)

    def rest_over(self, marker: str, now_s: float) -> None:
        rest = parsed_rest(marker)
        if rest is not None and self._rests.get(rest.name) == rest:
            del self._rests[rest.name]
            if rest.name in self._names and rest.name not in self.in_hand:
                # or its marker was deleted by hand
                self._leased.setdefault(rest.name, KnownLease(now_s, 0.0, rest.version + 1))

    def claims_listed(self, names: Iterable[str], now_s: float) -> None:
        """Learn the names in ``claims``. ``now_s``: a time after the answer, so that every listed
        claim stood by then.
        """
        former, new = self._leased, KnownLease(now_s, now_s + SETTLING_S, 0)
        self._leased = {
            name: former.get(name) or replace(new)
            for name in names
            if name in former
            or (name in self._names and name not in self._rests and name not in self.in_hand)
        }
        for name in former.keys() - self._leased.keys():
            if former[name].since_s + SETTLING_S > now_s:  # the listing may be older
                self._leased[name] = former[name]
            else:  # its claim was taken away by hand
                self._schedule(name)

    def to_look_at(self, now_s: float, *, everything: bool = False) -> list[str]:
        return [name for name, known in self._leased.items() if everything or known.look_s <= now_s]

    def next_look_s(self) -> float:
        """When to look at the next lease; infinite without one."""
        return min((known.look_s for known in self._leased.values()), default=float("inf"))

    def observed(self, name: str, version: int, lease_s: float, now_s: float) -> bool:
        """Learn of a lease of ``lease_s`` seconds that was just read; returns whether it is over,
        so that anybody may have the message. It is over when that time has passed here since this
        version was first seen.
        """
        if (known := self._leased.get(name)) is None:
            return False
        if known.version != version:
            known.since_s, known.version, known.is_over = now_s, version, False
        end_s, known.look_s = known.since_s + lease_s * SLOWER, now_s + LONGEST_S
        if end_s > now_s:
            # Now and then: each extension is counted from when it was seen.
            known.look_s = min(end_s, known.look_s, now_s + max(SETTLING_S, lease_s / 4))
            return False
        if not known.is_over:
            known.is_over = True
            self._schedule(name)
        return True

    def choose(self, most: int, now_ms: int, *, skip: int = 0) -> list[Choice]:
        """Choose the next messages in the order of delivery, at most ``most``; they are in hand
        from now on. ``skip``: leave that many to others, if there are more.
        """
        return list(map(self._choice, self._take(most, now_ms, skip=skip)))

    def choose_these(self, names: Iterable[str], now_ms: int) -> list[Choice]:
        """Choose those of ``names`` that may be delivered now; they are in hand from now on."""
        free = [name for name in names if self._is_free(name, now_ms)]
        self.in_hand.update(free)
        return [self._choice(name) for name in free]

    def release(self, names: Iterable[str]) -> None:
        """Make these messages free again: their claim failed, or they were given back."""
        for name in names:
            if name in self.in_hand:
                self.in_hand.discard(name)
                if name in self._names:
                    self._schedule(name)

    def claimed(self, name: str, version: int, since_s: float, lease_s: float) -> None:
        """Note that this consumer has leased the message. Like any other lease, this one
        may end.
        """
        self._taken(name, KnownLease(since_s, since_s + lease_s * SLOWER, version))

    def lost(self, name: str, now_s: float) -> None:
        """Note that a claim failed: forget what was known of the message, which another
        may have.
        """
        self._taken(name, KnownLease(now_s, now_s + SETTLING_S))

    def _taken(self, name: str, lease: KnownLease) -> None:
        if name in self.in_hand:  # otherwise newer news came meanwhile: released, or gone
            self.in_hand.discard(name)
            self._rests.pop(name, None)
            self._leased[name] = lease

    def extended(self, name: str, version: int, since_s: float, lease_s: float) -> None:
        """Note that this consumer's lease was extended: it lasts ``lease_s`` seconds from
        ``since_s``.
        """
        if (known := self._leased.get(name)) is not None and known.version == version - 1:
            self._leased[name] = KnownLease(since_s, since_s + lease_s * SLOWER, version)

    def due_times_ms(self, now_ms: int) -> list[int]:
        """Return the due time of each message that may be delivered now. Looks at every due
        message.
        """
        return list(map(self.due_ms_of, self.upcoming(len(self), now_ms)))

    def due_ms_of(self, name: str) -> int:
        rest = self._rests.get(name)
        return self._names[name].due_ms if rest is None else rest.until_ms

    def _is_taken(self, name: str) -> bool:
        if name in self.in_hand or name not in self._names:
            return True
        return (known := self._leased.get(name)) is not None and not known.is_over

    def _is_outdated(self, entry: Entry) -> bool:
        return entry[:-1] != self.order_of(entry[-1])

    def _entry_once_due(self, name: str) -> Entry:
        if (group := self._names[name].group) != NO_GROUP:
            waiting = self._waiting.setdefault(group, [])
            heapq.heappush(waiting, (self._urgency(name), name))
            head = self._head_of(group)
            assert head is not None  # the message is one of the group
            name = head  # which may go before others now
        return self._entry(name)

    def order_of(self, name: str) -> tuple[int, int]:
        """The sort key of a message in the order of delivery. The first message of a group has the
        best key of all that wait in the group.
        """
        parsed = self._names[name]
        best = self._waiting.get(parsed.group, ())
        while best and (best[0][1] not in self._names or self._urgency(best[0][1]) != best[0][0]):
            heapq.heappop(best)
        urgency = self._urgency(name)
        return min(urgency, best[0][0]) if best else urgency, parsed.sequence

    def _urgency(self, name: str) -> int:
        priority = self._names[name].priority
        if self.ageing_s is None:
            return priority
        return self.due_ms_of(name) + int(priority * self.ageing_s * 1000)

    def _is_free(self, name: str, now_ms: int) -> bool:
        if not super()._is_free(name, now_ms):
            return False
        group = self._names[name].group
        return group == NO_GROUP or self._head_of(group) == name

    def _head_of(self, group: str) -> str | None:
        heap = self._groups.get(group, [])
        while heap and heap[0][1] not in self._names:
            heapq.heappop(heap)
        if not heap:
            self._groups.pop(group, None)
            self._waiting.pop(group, None)
            return None
        return heap[0][1]

    def _choice(self, name: str) -> Choice:
        rest = self._rests.get(name)
        if rest is not None:
            return Choice(name, rest.version, rest_name(rest.until_ms, rest.version, name))
        known = self._leased.get(name)
        return Choice(name, None if known is None else known.version)
