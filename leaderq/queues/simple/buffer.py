"""What a taker of a simple queue knows of it: which items are left, which of those it has read,
which of those it claims (pure).

The list of a queue is used up before it is asked for again, for whatever is put later goes behind
it. Items are read in blocks, ahead of the claims; what was read says nothing about who will have
the item.

Who takes first has it, so takers that all begin at the head of one list are in each other's way. A
lone taker never notices anybody: its blocks begin at the head, always. A taker that found an item
gone returns way: it leaves its block, and the next begins at one of the first :attr:`Stock.spread`
items, by chance. That is twice as many after each such find, :data:`WIDEST` at most, and fewer
again with each item that it gets. So takers soon work on blocks of their own. No head is passed
over more than :data:`PATIENCE` times in a row.
"""

from __future__ import annotations

import random
from bisect import insort
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from leaderq.queues.wire.names import QueueKind, is_item, sort_key

WIDEST = 1024
"""Items at the head that takers in each other's way spread over, at most."""
PATIENCE = 32
"""How often a taker passes over the head before it goes there."""
_AHEAD, _FIRST_AHEAD, _LEAST_AHEAD, _MOST_AHEAD = 100, 16, 8, 800
_AHEAD_BYTES = 256 * 1024
_ITEM_BYTES = 80  # its metadata in the answer
_NARROWING = 0.98
_FORGETTING = 0.93
_order = sort_key(QueueKind.SIMPLE)


@dataclass(frozen=True, slots=True)
class ReadItem:
    """An item that was read: its name, what it holds, and the version of that."""

    name: str
    data: bytes
    version: int


def _place(held: ReadItem) -> int:
    place: int = _order(held.name)
    return place


class ItemBuffer:
    """See the module. Not thread-safe: its owner's lock guards it."""

    def __init__(self, chance: random.Random | None = None) -> None:
        self._chance = chance or random.Random()
        self._unread: deque[str] = deque()
        self._start = 0  # where in there the next block begins
        self._read: list[ReadItem] = []
        self._claimed: set[str] = set()
        self._passed = 0
        self._typical_bytes = 0.0
        self._stretch = 1  # blocks are longer after one that was all gone
        self.spread = 1.0
        """How many items at the head a block may begin at; 1: at the first."""

    def __len__(self) -> int:
        """Items believed to be left."""
        return len(self._unread) + len(self._read)

    def listed(self, names: Iterable[str]) -> None:
        """The queue was listed: these are its children, foreign ones too."""
        items = [name for name in names if is_item(QueueKind.SIMPLE, name) and name not in self._claimed]
        self._unread = deque(sorted(items, key=_order))
        self._read.clear()

    def forget(self) -> None:
        """Nothing known is true any more."""
        self._unread.clear()
        self._read.clear()

    def first(self) -> str | None:
        """The name at the head."""
        if self._read and not (self._unread and _order(self._unread[0]) < _place(self._read[0])):
            return self._read[0].name
        return self._unread[0] if self._unread else None

    def drop(self, name: str) -> None:
        """This one, at the head, is gone."""
        if self._unread and self._unread[0] == name:
            self._unread.popleft()
        else:
            self._read = [held for held in self._read if held.name != name]

    def next_unread(self, wanted: int) -> list[str]:
        """The next block, if ``wanted`` items are to be claimed."""
        if not self._unread:
            return []
        self._start = self._chance.randrange(min(int(self.spread), len(self._unread)))
        if self._start and self._passed >= PATIENCE:
            self._start = 0
        fits = int(_AHEAD_BYTES / self._typical_bytes) if self._typical_bytes else _FIRST_AHEAD
        sought = _AHEAD if self.spread < 2 else min(_AHEAD, max(_LEAST_AHEAD, int(self.spread) // 4))
        count = max(1, min(max(wanted, sought), fits)) * self._stretch
        return list(islice(self._unread, self._start, self._start + count))

    def learned(self, names: Sequence[str], found: Sequence[ReadItem | None]) -> None:
        """The block was read; ``None``: that item is gone. Does nothing if much has changed
        meanwhile.
        """
        start = self._start
        if list(islice(self._unread, start, start + len(names))) != names:
            return
        self._unread.rotate(-start)
        for _ in names:
            self._unread.popleft()
        self._unread.rotate(start)
        self._passed = self._passed + 1 if start else 0
        self._stretch = 1 if any(found) else min(2 * self._stretch, _MOST_AHEAD // _AHEAD)
        is_mixed = bool(self._read)
        for held in found:
            if held is not None:
                self._read.append(held)
                self._typical_bytes = max(len(held.data) + _ITEM_BYTES, self._typical_bytes * _FORGETTING)
        if is_mixed:
            self._read.sort(key=_place)

    def pick(self, wanted: int) -> list[ReadItem]:
        """Up to ``wanted`` items to claim, in their order; none if something must be read first."""
        picked = self._read[:wanted]
        del self._read[:wanted]
        self._claimed.update(held.name for held in picked)
        return picked

    def taken(self, held: ReadItem) -> None:
        """It is ours."""
        self._claimed.discard(held.name)
        self.spread = max(1.0, self.spread * _NARROWING)

    def missed(self, held: ReadItem) -> None:
        """Somebody else was quicker, and is likely to be at the rest of the block too."""
        self._claimed.discard(held.name)
        self.spread = min(float(WIDEST), self.spread * 2)
        self._leave([])

    def give_back(self, held: ReadItem, *, is_changed: bool = False) -> None:
        """It was not claimed after all; ``is_changed``: and must be read again."""
        self._claimed.discard(held.name)
        if is_changed:
            self._leave([held.name])
        else:
            insort(self._read, held, key=_place)

    def let_go(self, held: ReadItem) -> None:
        """Nobody knows what became of the claim."""
        self._claimed.discard(held.name)

    def _leave(self, more: Sequence[str]) -> None:
        """What was read is unread again, in its place, which is not far from the head."""
        again = [*(held.name for held in self._read), *more]
        self._read.clear()
        if again:
            again += [self._unread.popleft() for _ in range(min(2 * WIDEST, len(self._unread)))]
            self._unread.extendleft(sorted(again, key=_order, reverse=True))
