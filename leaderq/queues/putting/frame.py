"""The data of a znode of several items, which is framed when it is sent."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from leaderq.queues.serializers import bytes_as_they_are, unchanging
from leaderq.queues.wire import payload
from leaderq.zookeeper import LateData


class Frame(LateData):
    """What :func:`~leaderq.queues.wire.payload.encode` makes of these. A value."""

    __slots__ = ("_items", "_size")

    def __init__(self, items: tuple[bytes, ...]) -> None:
        self._items = items
        self._size = payload.framed_bytes(items)

    def __repr__(self) -> str:
        return f"Frame({len(self._items)} items, {self._size} bytes)"

    def __len__(self) -> int:
        return self._size

    def parts(self) -> Sequence[bytes]:
        return payload.parts(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frame) and self._items == other._items

    def __hash__(self) -> int:
        return hash(self._items)


def framed(values: Sequence[Any], serialize: Callable[[Any], bytes]) -> Frame:
    """The frame of these, as they are now: what is sent later must not be changed meanwhile."""
    if serialize is bytes_as_they_are and set(map(type, values)) == {bytes}:
        return Frame(tuple(values))
    return Frame(tuple(map(unchanging, map(serialize, values))))
