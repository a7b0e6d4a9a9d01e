"""Several sequences seen as one, without a copy.

A batch of several partitions is handed over as one sequence. Its records may be made only while
they are looked at (:mod:`leaderq.kafka.clients.confluent_record`); a list of them would make all at
once, keep them alive, and wake the garbage collector: with confluent-kafka that costs as much as
all the rest of the career thread's work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TypeVar, overload

T = TypeVar("T")


class Chained(Sequence[T]):
    """The elements of ``parts``, one part after the other; the parts must not change."""

    __slots__ = ("_length", "_parts")

    def __init__(self, parts: Sequence[Sequence[T]]) -> None:
        self._parts = parts
        self._length = sum(map(len, parts))

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self._parts)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[T]: ...
    def __getitem__(self, index: int | slice) -> T | Sequence[T]:
        if isinstance(index, slice):
            return list(self)[index]
        left = index + self._length if index < 0 else index
        if left >= 0:
            for part in self._parts:
                if left < len(part):
                    return part[left]
                left -= len(part)
        raise IndexError(f"there is no element {index} of {self._length}")

    def __eq__(self, other: object) -> bool:
        """Equal to any sequence of equal elements, a list too."""
        return (
            isinstance(other, Sequence)
            and len(other) == self._length
            and all(a == b for a, b in zip(self, other, strict=True))
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(list(self))
