"""The order in which a ZooKeeper server lists a set of names: that of Java's ``HashSet``.

A program must not rely on this order. So a simulation must not list names in an order that is
kinder than the real one (the order of creation, for example). The order is the same for any Python
and any hash seed.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

CHILDREN_CAPACITY: Final = 8
"""Buckets of a new set of children; any other new set has 16."""
_CAPACITY: Final = 16


@lru_cache(maxsize=1 << 16)
def _spread_hash(text: str) -> int:
    code = 0
    units = text.encode("utf-16-be")
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8) + units[at + 1]) & 0xFFFFFFFF
    return code ^ (code >> 16)


def _in_buckets(names: Iterable[str], capacity: int) -> list[str]:
    mask = capacity - 1
    return sorted(names, key=lambda name: _spread_hash(name) & mask)


class JavaSet(dict[str, None]):
    """A set of names that is listed as a ``HashSet`` is: by bucket, and within a bucket by age.

    Not modelled: buckets of eight names and more, which Java turns into trees.
    """

    __slots__ = ("_capacity",)

    def __init__(self, capacity: int = _CAPACITY) -> None:
        super().__init__()
        self._capacity = capacity

    def add(self, name: str) -> None:
        """Add a name. The table doubles when it is three quarters full, and never shrinks."""
        self[name] = None
        if len(self) * 4 > self._capacity * 3:
            self._capacity *= 2

    def listed(self) -> list[str]:
        """The names in the order in which Java lists them."""
        return list(self) if len(self) < 2 else _in_buckets(self, self._capacity)

    def listed_of_clone(self) -> list[str]:
        """The names in the order of a copy that ``clone()`` made: its table is as small as
        possible.
        """
        least, capacity = int(len(self) / 0.75 + 1), 1
        while capacity < least:
            capacity *= 2
        return _in_buckets(self.listed(), capacity)

    def copy(self) -> JavaSet:
        """Another set with these names, the same table and the same ages."""
        twin = JavaSet(self._capacity)
        twin.update(self)
        return twin
