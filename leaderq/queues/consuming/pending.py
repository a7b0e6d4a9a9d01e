"""The names known to lie in a queue, in their order, and which of them may be claimed now (pure).

A listing is used up before the next one is asked for. Names come back into it: those released,
those whose rest (a retry's back-off) is over, and, where the queue is watched name by name, new
ones. While a name is *returning*, because its release is under way, no name after it is taken;
otherwise it would be handed out later than its successors.

Each consumer has a *share*, the names of every n-th number, or all would collide at the head. It
leaves a name of another share to the owner of that share, but not for longer than :data:`GRACE_MS`.
A name's number tells how long it has waited: if the number is not above the highest one of an
earlier listing, the name has waited since that listing.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Iterable
from typing import Any

from leaderq.base import chance
from leaderq.queues.wire.names import QueueKind, due_ms_of, prefix_for, sequence_of, sort_key

GRACE_MS = 50
"""How long a name of another member's share is left to its owner."""
_WEIGHT = 0.1
_LEAST_WON = 0.5
_SPREAD = 3
_LOOKED_AT = 500


class Share:
    """The names that the consumer at ``position`` among ``members`` takes first: every n-th number.
    It also knows which members are *not at work*; others take the names of these at once.

    A member is not at work once an overdue name of its share could be claimed, for as long as at
    least half of its names can be claimed.
    """

    def __init__(self, position: int, members: int) -> None:
        self._position, self.members = position, members
        self._at_work = list(range(members))
        self.won: dict[int, float] = {}
        """By member not at work: how many of its names could be claimed lately."""

    def __contains__(self, name: str) -> bool:
        return sequence_of(name) % self.members == self._position

    def next_number(self, number: int) -> int:
        """The first number of this share that is not below ``number``."""
        return number + (self._position - number) % self.members

    def stands_in_for(self, name: str) -> bool:
        """Whether the owner is not at work, and this consumer is the one to take ``name``."""
        number = sequence_of(name)
        if number % self.members not in self.won:
            return False
        chosen = number // self.members % len(self._at_work)
        return self._at_work[chosen] == self._position

    def note(self, won: Iterable[str], lost: Iterable[str]) -> None:
        """Update who is at work: ``won`` could be claimed by this consumer, ``lost`` could not."""
        for names, outcome in ((won, 1.0), (lost, 0.0)):
            for owner in (sequence_of(name) % self.members for name in names):
                share = self.won.get(owner, outcome)
                share += _WEIGHT * (outcome - share)
                if owner != self._position and share >= _LEAST_WON:
                    self.won[owner] = share
                else:
                    self.won.pop(owner, None)
        self._at_work = [at for at in range(self.members) if at not in self.won]


class PendingNames:
    """The names that wait in one queue; see the module. Not thread-safe. Times are milliseconds: by
    a clock that never steps, how long a name has waited for its owner (``replace``,
    ``has_overdue``, ``take_overdue``, ``overdue_ms``); all others since the epoch.
    """

    def __init__(self, kind: QueueKind) -> None:
        self._key = sort_key(kind)
        self._is_timed = kind is QueueKind.DELAY
        is_numbered = kind in (QueueKind.PLAIN, QueueKind.SIMPLE)
        self._prefix = prefix_for(kind) if is_numbered else None
        self._listed: tuple[str, ...] = ()
        self._at = 0
        self._added: list[tuple[Any, str]] = []
        self._added_names: set[str] = set()
        self._resting: list[tuple[int, str]] = []
        self._rests: dict[str, int] = {}
        self._gone: set[str] = set()
        self._others: list[str] = []  # only where the order is that of the numbers
        # when it was listed, and the highest number seen: numbers up to it have waited long enough
        self._marks: deque[tuple[int, int]] = deque()
        self._highest = self._overdue_to = -1  # number seen; number that has waited long enough
        self._returning: dict[str, Any] = {}  # its order, by name
        self.in_hand: set[str] = set()
        """Names that this consumer has claimed or is claiming, even if a listing has them."""

    def replace(self, names: Iterable[str], locked: Iterable[str] = (), now_ms: int = 0) -> None:
        """Replace all names by a new listing. ``locked``: names that somebody works on."""
        taken = self.in_hand.union(locked)
        kept = [name for name in names if name not in taken]
        if self._rests:
            there = set(kept)
            self._rests = {name: until for name, until in self._rests.items() if name in there}
            kept = [name for name in kept if name not in self._rests]
        # of plain strings, so the garbage collector leaves it alone
        self._listed = tuple(sorted(kept, key=self._key))
        self._at = 0
        self._added, self._others, self._gone, self._added_names = [], [], set(), set()
        self._highest = max(self._highest, *map(sequence_of, self._listed[-1:]), -1)
        self._marks.append((now_ms, self._highest))
        self._overdue(now_ms)  # forgets old marks
        self._resting = [(until, name) for name, until in self._rests.items()]
        heapq.heapify(self._resting)

    def restart(self) -> None:
        """Forget everything: the queue was deleted, and its numbers begin again."""
        self._highest = self._overdue_to = -1
        self._marks.clear()
        self.replace(())

    def add(self, name: str) -> None:
        """Add a name that was created, or that is free again."""
        self._gone.discard(name)
        if name in self._added_names or self._is_ahead(name):
            return  # it stands once, so that it can be discarded
        if name not in self.in_hand and name not in self._rests:
            heapq.heappush(self._added, (self._key(name), name))
            self._added_names.add(name)

    def discard(self, name: str) -> None:
        self._rests.pop(name, None)
        if name in self._added_names or self._is_ahead(name):  # otherwise it would not be met again
            self._gone.add(name)

    def rest(self, name: str, until_ms: int) -> None:
        self.in_hand.discard(name)
        self._rests[name] = until_ms
        heapq.heappush(self._resting, (until_ms, name))

    def returns(self, name: str) -> None:
        """The release of ``name`` has begun; :meth:`is_settled` must follow in any case."""
        self._returning[name] = self._key(name)

    def is_settled(self, name: str) -> None:
        self._returning.pop(name, None)

    @property
    def has_returning(self) -> bool:
        """Whether a release is under way, so that a name may soon be free that no listing shows."""
        return bool(self._returning)

    def release(self, names: Iterable[str]) -> None:
        """Make names free again that were claimed, or about to be claimed."""
        for name in names:
            self.in_hand.discard(name)
            self.add(name)

    def drop(self, names: Iterable[str]) -> None:
        """Forget names that are done, or another's; only a new listing brings them back."""
        self.in_hand.difference_update(names)

    def take(self, most: int, now_ms: int, share: Share | None = None) -> list[str]:
        """The next names of the share, in order, at most ``most``; in hand from now on."""
        self._wake(now_ms)
        found: list[str] = []
        while len(found) < most and (name := self._next(now_ms)) is not None:
            if share is not None and name not in share:
                self._leave(name)
            elif name not in self.in_hand:
                found.append(name)
                self.in_hand.add(name)
        return found

    def take_behind(self, ahead: int, most: int) -> list[str]:
        """As :meth:`take`, of the listing after its next ``ahead`` names."""
        begin = self._at + ahead
        names = self._in_hand(self._listed[begin : begin + most])
        self._gone.update(names)  # so that they are not met again
        return names

    def upcoming(self, most: int, share: Share | None = None) -> list[str]:
        """Names that are likely to be taken next; they are not in hand yet."""
        listed = self._listed[self._at : self._at + most]
        return [
            name for name in listed if name not in self.in_hand and (share is None or name in share)
        ]

    def guesses(self, most: int, share: Share | None = None) -> list[str]:
        """The likely names of what is put next; none if more than the number must be guessed."""
        if self._prefix is None:
            return []
        first, step = self._highest + 1, 1
        if share is not None:
            first, step = share.next_number(first), share.members
        return [f"{self._prefix}{first + step * at:010d}" for at in range(most)]

    def take_overdue(self, most: int, now_ms: int) -> list[str]:
        """Take names of others' shares that have waited too long: the oldest names or, so that two
        helpers do not always meet, names soon after them. (If any overdue names were taken, some
        would wait for ever.)
        """
        overdue = self._overdue(now_ms)
        if not overdue or not most:
            return []
        begin = most * chance.randrange(min(_SPREAD, max(1, overdue // most)))
        end = min(overdue, begin + most)
        # names that were freed again are there twice
        unique = dict.fromkeys(self._others[begin:end])
        del self._others[begin:end]
        return self._in_hand(unique)

    def _overdue(self, now_ms: int) -> int:
        """How many names of others have waited too long; these are the first of ``_others``."""
        while self._marks and self._marks[0][0] + GRACE_MS <= now_ms:
            self._overdue_to = max(self._overdue_to, self._marks.popleft()[1])
        return bisect_right(self._others, self._overdue_to, key=sequence_of)

    def take_instead(self, most: int, share: Share) -> list[str]:
        """Take names whose owners are not at work, and for which this consumer stands in."""
        head = self._others[: _LOOKED_AT + most]
        chosen = dict.fromkeys([name for name in head if share.stands_in_for(name)][:most])
        self._others[: len(head)] = [name for name in head if name not in chosen]
        return self._in_hand(chosen)

    def _in_hand(self, names: Iterable[str]) -> list[str]:
        found = [name for name in names if name not in self._gone and name not in self.in_hand]
        self.in_hand.update(found)
        return found

    def overdue_ms(self, now_ms: int) -> int | None:
        """When the first name of others' shares will be overdue; ``None`` without such names."""
        if self.has_overdue(now_ms):
            return now_ms
        return self._marks[0][0] + GRACE_MS if self._others and self._marks else None

    def has_overdue(self, now_ms: int) -> bool:
        return self._overdue(now_ms) > 0

    def first_key(self, now_ms: int) -> Any:
        """The sort key of the first name that may be claimed now, or soon because it is returning;
        ``None`` without such a name.
        """
        self._wake(now_ms)
        keys = [*self._returning.values()]
        if (head := self._head()) is not None and not self._is_early(head, now_ms):
            keys.append(self._key(head))
        return min(keys, default=None)

    def next_ms(self) -> int | None:
        """When the first resting or delayed name may be claimed; ``None`` if no name must wait."""
        times = [self._resting[0][0]] if self._resting else []
        head = self._head() if self._is_timed else None
        if head is not None:
            times.append(due_ms_of(head))
        return min(times, default=None)

    @property
    def first(self) -> str | None:
        """The first name that waits."""
        return self._head()

    def late(self, now_ms: int) -> int:
        """How many of the known names rest or are not due yet."""
        timed = [*self._listed[self._at :], *self._added_names] if self._is_timed else []
        return len(self._rests) + sum(self._is_early(name, now_ms) for name in timed)

    def due_ms(self, name: str) -> int | None:
        """When this item is due; ``None`` unless this is a delay queue."""
        return due_ms_of(name) if self._is_timed else None

    def _leave(self, name: str) -> None:
        """Leave a name to its owner; sorted, because a freed name may be older than others."""
        if self._others and self._key(name) < self._key(self._others[-1]):
            insort(self._others, name, key=self._key)
        else:
            self._others.append(name)

    def _is_ahead(self, name: str) -> bool:
        at = bisect_left(self._listed, self._key(name), lo=self._at, key=self._key)
        return at < len(self._listed) and self._listed[at] == name

    def _wake(self, now_ms: int) -> None:
        while self._resting and self._resting[0][0] <= now_ms:
            until, name = heapq.heappop(self._resting)
            if self._rests.get(name) == until:
                del self._rests[name]
                self.add(name)

    def _is_early(self, name: str, now_ms: int) -> bool:
        return self._is_timed and due_ms_of(name) > now_ms

    def _head(self) -> str | None:
        while self._gone and self._at < len(self._listed) and self._listed[self._at] in self._gone:
            self._gone.discard(self._listed[self._at])
            self._at += 1
        while self._added and self._added[0][1] in self._gone:
            self._drop_added()
        listed = self._listed[self._at] if self._at < len(self._listed) else None
        if not self._added:
            return listed
        key, added = self._added[0]
        return added if listed is None or key <= self._key(listed) else listed

    def _next(self, now_ms: int) -> str | None:
        head = self._head()
        if head is None or self._is_early(head, now_ms):
            return None
        if self._returning and min(self._returning.values()) <= self._key(head):
            return None
        if self._added and self._added[0][1] == head:
            self._drop_added()
        else:
            self._at += 1
        return head

    def _drop_added(self) -> None:
        name = heapq.heappop(self._added)[1]
        self._added_names.discard(name)
        self._gone.discard(name)
