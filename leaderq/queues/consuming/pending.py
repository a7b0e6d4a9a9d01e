"""The names known to lie in a queue, in their order, and which of them may be claimed now (pure).

A listing is used up before the next one is asked for. Names come back into it: those released,
those whose rest (a retry's back-off) is over, and, where the queue is watched name by name, new
ones. While a name is *returning*, because its release is under way, no name after it is taken;
otherwise it would be handed out later than its successors.

Each consumer has a *share*, the names of every n-th number, or all would collide at the head. It
takes these first, and names of other shares when the listing has no more of its own. What was in a
listing that was made :data:`GRACE_MS` before the last one is anybody's, in its order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from leaderq.engine.due_order import DueOrder, Entry
from leaderq.queues.wire.names import QueueKind, due_ms_of, prefix_for, sequence_of, sort_key

GRACE_MS = 50
"""How long the names of a listing are left to their owners, also if newer ones have come."""


class Share(NamedTuple):
    """The names that the consumer at ``position`` among ``members`` takes first."""

    position: int
    members: int


class PendingNames(DueOrder):
    """The names that wait in one queue; see the module. Not thread-safe."""

    _names: set[str]
    _highest: int
    """The highest number seen."""
    _anybodys: int
    """Up to this number nothing is left to its owner."""
    _mark: tuple[int, int]
    """When a listing was made, and the highest number seen then."""

    def __init__(self, kind: QueueKind) -> None:
        super().__init__()
        self._key = sort_key(kind)
        self._is_timed = kind is QueueKind.DELAY
        is_guessed = kind in (QueueKind.PLAIN, QueueKind.SIMPLE)
        self._prefix = prefix_for(kind) if is_guessed else None
        self._share: Share | None = None
        self._rests: dict[str, int] = {}
        self._returning: dict[str, Entry] = {}  # its order, by name
        self.restart()

    def due_ms_of(self, name: str) -> int:
        """When the item may be claimed; 0: at any time."""
        if (until_ms := self._rests.get(name)) is not None:
            return until_ms
        return due_ms_of(name) if self._is_timed else 0

    def order_of(self, name: str) -> Entry:
        return self._entry(name)[:-1]

    def _entry(self, name: str) -> Entry:
        return self._is_others(name), self._key(name), name

    def _is_others(self, name: str) -> bool:
        if (share := self._share) is None or (number := sequence_of(name)) <= self._anybodys:
            return False
        return number % share.members != share.position

    def replace(self, names: Iterable[str], locked: Iterable[str] = (), now_ms: int = 0) -> None:
        """Replace all names by a new listing. ``locked``: names that somebody works on."""
        ordered = sorted(names, key=self._key, reverse=True)  # so the entries are nearly in order
        self._names = set(ordered)
        self._highest = max([self._highest, *map(sequence_of, ordered[:1])])
        if abs(now_ms - self._mark[0]) >= GRACE_MS:  # also if the calendar was set back
            self._anybodys, self._mark = self._mark[1], (now_ms, self._highest)
        self._names.difference_update(locked)
        self._rests = {name: until for name, until in self._rests.items() if name in self._names}
        self._fill(filter(self._names.__contains__, ordered), now_ms)

    def restart(self) -> None:
        """Forget everything: the queue was deleted, and its numbers begin again."""
        self._highest, self._anybodys, self._mark = -1, -1, (0, -1)
        self.replace(())

    def share_out(self, share: Share | None, now_ms: int) -> None:
        """Take the names of this share first; ``None``: all in their order."""
        if share != self._share:
            self._share = share
            self._fill(self._names, now_ms)

    def add(self, name: str) -> None:
        """Add a name that was created, or that is free again."""
        self._names.add(name)
        self._schedule(name)

    def discard(self, name: str) -> None:
        self._names.discard(name)
        self._rests.pop(name, None)

    def rest(self, name: str, until_ms: int) -> None:
        self._rests[name] = until_ms
        self.release([name])

    def returns(self, name: str) -> None:
        """The release of ``name`` has begun; :meth:`is_settled` must follow in any case."""
        self._returning[name] = self.order_of(name)

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

    def drop(self, names: Sequence[str]) -> None:
        """Forget names that are done, or another's; only a new listing brings them back."""
        self.in_hand.difference_update(names)
        self._names.difference_update(names)

    def take(self, most: int, now_ms: int, *, skip: int = 0, of_others: bool = True) -> list[str]:
        """As :meth:`_take`: either names of the share or, if there are none, ``of_others``."""
        bounds = [*self._returning.values()]
        if not of_others or self.has_own(now_ms):
            bounds.append((True,))
        return self._take(most, now_ms, skip=skip, before=min(bounds, default=None))

    def has_own(self, now_ms: int) -> bool:
        """Whether a name of the share may be claimed now."""
        return (head := self._head(now_ms)) is not None and not head[0]

    def guesses(self, most: int) -> list[str]:
        """The likely names of what is put next; none if more than the number must be guessed."""
        if self._prefix is None:
            return []
        position, step = self._share or (0, 1)
        first = self._highest + 1
        first += (position - first) % step
        return [f"{self._prefix}{first + step * at:010d}" for at in range(most)]

    def first_key(self, now_ms: int) -> Any:
        """The sort key of the first name that may be claimed now, or soon because it is returning;
        ``None`` without such a name.
        """
        keys = [*self._returning.values()]
        if self.has_own(now_ms):
            keys.append((self._first() or ())[:-1])
        return min(keys, default=(True, None))[1]

    def first(self, now_ms: int) -> str | None:
        """The name that goes first, of those that may be claimed now."""
        return None if (head := self._head(now_ms)) is None else head[-1]

    def late(self, now_ms: int) -> int:
        """How many of the known names rest or are not due yet."""
        names = self._names if self._is_timed else self._rests
        return sum(self.due_ms_of(name) > now_ms for name in names)
