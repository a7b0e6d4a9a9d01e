"""A batch of a :class:`~leaderq.kafka.sink.KafkaSink` on its way: its messages, and the records
that each of them carries.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from leaderq.clock import now_s
from leaderq.kafka.clients.producer import Message
from leaderq.producing.frame import FRAME_HEADER, Packed, pack_frame


class Parcel:
    """One Kafka message, and the positions in the batch of the records that it carries."""

    __slots__ = ("future", "message", "positions")

    def __init__(self, message: Message, positions: list[int]) -> None:
        self.message = message
        self.positions = positions
        self.future: Any = None


class Shipment:
    """A batch on its way."""

    def __init__(self, batch: Sequence[Any]) -> None:
        self._batch = batch
        self.parcels: list[Parcel] = []
        self.refused: dict[int, BaseException] = {}
        self.left: list[int] = []
        self.error: BaseException | None = None

    def is_of(self, batch: Sequence[Any]) -> bool:
        """Whether it is of these very records."""
        return len(batch) == len(self._batch) and all(a is b for a, b in zip(batch, self._batch, strict=True))

    def break_off(self, position: int, error: BaseException) -> None:
        """Nothing from this position on is sent."""
        self.error = error
        self.left = [at for at in range(position, len(self._batch)) if at not in self.refused]
        self.parcels = [parcel for parcel in self.parcels if parcel.positions[0] < position]
        for parcel in self.parcels:
            self.left = [at for at in self.left if at not in parcel.positions]

    @property
    def open(self) -> int:
        """Messages not acknowledged yet."""
        return sum(parcel.future is not None and not parcel.future.is_done for parcel in self.parcels)

    def wait(self, deadline: float) -> bool:
        """Until all are acknowledged or have failed; ``False`` if that did not come in time."""
        for parcel in self.parcels:
            future = parcel.future
            while future is not None and not future.is_done:
                left_s = deadline - now_s()
                if left_s <= 0:
                    return False
                try:
                    future.get(timeout=left_s)
                except Exception:  # noqa: BLE001, S110 - looked at when all are there
                    pass
        return True


def framed(where: tuple[str, int], lot: Sequence[tuple[int, Packed]]) -> Parcel:
    """One message that carries all of ``lot``, each with its position in the batch, to that topic
    and partition.
    """
    topic, partition = where
    headers = [(FRAME_HEADER, b"%d" % len(lot))]
    message = Message(topic, pack_frame([piece for _, piece in lot]), None, headers, partition)
    return Parcel(message, [position for position, _ in lot])
