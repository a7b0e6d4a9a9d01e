"""Data that is put together when it is sent."""

from __future__ import annotations

from leaderq.zookeeper import LateData


class Late(LateData):
    """Counts how often that happens."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.made = 0

    def __len__(self) -> int:
        return self.size

    def parts(self) -> list[bytes]:
        self.made += 1
        return [b"z"] * self.size
