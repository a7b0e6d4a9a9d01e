"""Names in the order in which they go, some of them not before a time (pure).

What a consumer of either kind of queue knows of what it may claim next: a hint, because the servers
decide. A name that may be claimed is **later** (a heap by the time at which it is due) or **due**
(in the order in which names go: a list of what was due when all was listed, and a heap of what has
become due since). They are cleaned when they are read: an entry that is not valid any more is
dropped there, and a name may stand in them twice. The time may go back, because a clock was set or
was read before the names were listed: names that were due may then be *later* again. Not
thread-safe.
"""

from __future__ import annotations

import heapq
from abc import ABC, abstractmethod
from collections.abc import Container, Iterable, Iterator
from typing import Any

Entry = tuple[Any, ...]
"""The sort key of a name, and the name."""


class DueOrder(ABC):
    """See the module. ``_names``: all that are there. Times are milliseconds since the epoch."""

    _names: Container[str]

    def __init__(self) -> None:
        self._later: list[tuple[int, str]] = []
        self._listed: list[Entry] = []  # the last goes first
        self._due: list[Entry] = []
        self.in_hand: set[str] = set()
        """Names that this consumer is about to claim, or has claimed."""

    @abstractmethod
    def due_ms_of(self, name: str) -> int: ...

    @abstractmethod
    def order_of(self, name: str) -> Entry:
        """The sort key of a name that is there."""

    def _is_taken(self, name: str) -> bool:
        return name in self.in_hand or name not in self._names

    def _is_free(self, name: str, now_ms: int) -> bool:
        return not self._is_taken(name) and self.due_ms_of(name) <= now_ms

    def _take(
        self, most: int, now_ms: int, *, skip: int = 0, before: Entry | None = None
    ) -> list[str]:
        """The next names, in order, at most ``most``; in hand from now on. ``skip``: leave that
        many to others, if there are more. ``before``: take none at or after this sort key.
        """
        free: dict[str, Entry] = {}
        self._promote(now_ms)
        while len(free) < skip + most and (entry := self._first()) is not None:
            if before is not None and entry >= before:
                break
            self._pop(entry)
            name = entry[-1]
            if not self._is_free(name, now_ms):
                self._dropped(name, now_ms)
            elif self._is_outdated(entry):
                heapq.heappush(self._due, self._entry(name))
            else:
                free.setdefault(name, entry)
        left = min(skip, max(0, len(free) - 1))
        names = list(free)[left : left + most]
        self.in_hand.update(names)
        for name, entry in free.items():
            if name not in self.in_hand:
                heapq.heappush(self._due, entry)
        return names

    def upcoming(self, most: int, now_ms: int) -> list[str]:
        """Names that :meth:`_take` is likely to take next; they are not in hand yet."""
        self._promote(now_ms)
        names = dict[str, None]()
        listed = reversed(self._listed)
        for entry in heapq.merge(listed, self._along_heap()) if self._due else listed:
            if len(names) >= most:
                break
            if self._is_free(entry[-1], now_ms):
                names[entry[-1]] = None
        return list(names)

    def _along_heap(self) -> Iterator[Entry]:
        """Yield the entries of the heap in their order, and leave it as it is."""
        due, edge = self._due, [(entry, 0) for entry in self._due[:1]]
        while edge:
            entry, at = heapq.heappop(edge)
            yield entry
            for below in range(2 * at + 1, min(2 * at + 3, len(due))):
                heapq.heappush(edge, (due[below], below))

    def next_due_ms(self, now_ms: int) -> int | None:
        """When there is something to claim: ``now_ms`` if there is now, else the next due time;
        ``None`` if there is no name at all.
        """
        return self.later_ms() if self._head(now_ms) is None else now_ms

    def later_ms(self) -> int | None:
        """When the next name that must wait is due; ``None`` if none must."""
        while self._later and not self._is_later(self._later[0]):
            heapq.heappop(self._later)
        return self._later[0][0] if self._later else None

    def _fill(self, names: Iterable[str], now_ms: int) -> None:
        """Put all these names into the heaps, and nothing else."""
        self._later, self._due, self._listed = [], [], []
        for name in names:
            if (due_ms := self.due_ms_of(name)) > now_ms:
                self._later.append((due_ms, name))
            else:
                self._listed.append(self._entry_once_due(name))
        heapq.heapify(self._later)
        self._listed.sort(reverse=True)

    def _schedule(self, name: str) -> None:
        heapq.heappush(self._later, (self.due_ms_of(name), name))

    def _head(self, now_ms: int) -> Entry | None:
        """The first entry of what may be claimed now."""
        self._promote(now_ms)
        while (entry := self._first()) is not None and not self._is_free(entry[-1], now_ms):
            self._pop(entry)
            self._dropped(entry[-1], now_ms)
        return entry

    def _first(self) -> Entry | None:
        if not self._due or (self._listed and self._listed[-1] <= self._due[0]):
            return self._listed[-1] if self._listed else None
        return self._due[0]

    def _pop(self, first: Entry) -> None:
        if self._listed and first is self._listed[-1]:
            self._listed.pop()
        else:
            heapq.heappop(self._due)

    def _promote(self, now_ms: int) -> None:
        while self._later and self._later[0][0] <= now_ms:
            entry = heapq.heappop(self._later)
            if self._is_later(entry):
                heapq.heappush(self._due, self._entry_once_due(entry[1]))

    def _is_later(self, entry: tuple[int, str]) -> bool:
        due_ms, name = entry
        return not self._is_taken(name) and self.due_ms_of(name) == due_ms

    def _entry(self, name: str) -> Entry:
        return *self.order_of(name), name

    def _entry_once_due(self, name: str) -> Entry:
        """The entry that says that ``name`` is due from now on."""
        return self._entry(name)

    def _is_outdated(self, entry: Entry) -> bool:
        """Whether what this entry goes by has changed since it was made."""
        return False

    def _dropped(self, name: str, now_ms: int) -> None:
        """Handle a name that was dropped from those that are due: if it is not due yet, it is later
        again.
        """
        if not self._is_taken(name) and self.due_ms_of(name) > now_ms:
            self._schedule(name)
