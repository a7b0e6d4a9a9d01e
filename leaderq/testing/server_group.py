"""Several servers that act as one: an ensemble, a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from leaderq.testing.server import Server, all_at_once

M = TypeVar("M", bound=Server)
G = TypeVar("G", bound="ServerGroup[Any]")


class ServerGroup(Server, Generic[M]):
    """``members`` are the single servers, to be killed, frozen and started one by one; the methods of the group act on all."""

    def __init__(self, name: str, members: Sequence[M]) -> None:
        self.name = name
        self.members = list(members)

    @property
    def address(self) -> str:
        return ",".join(member.address for member in self.members)

    @property
    def alive(self) -> bool:
        return all(member.alive for member in self.members)

    @property
    def log_paths(self) -> Sequence[Path]:
        return [path for member in self.members for path in member.log_paths]

    def prepare(self) -> None:
        """What must be settled for all before one can start."""

    def waves(self) -> Sequence[Sequence[M]]:
        """The members in the order in which they start; those of one wave start together."""
        return [self.members]

    def start(self: G) -> G:
        self.prepare()
        try:
            for wave in self.waves():
                all_at_once(lambda member: member.start(), wave)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self, *, keep_data: bool = False) -> None:
        all_at_once(lambda member: member.stop(keep_data=keep_data), self.members)

    def kill(self) -> None:
        for member in self.members:
            member.kill()

    def freeze(self) -> None:
        for member in self.members:
            member.freeze()

    def thaw(self) -> None:
        for member in self.members:
            member.thaw()

    def heal(self) -> None:
        self.thaw()
        all_at_once(lambda member: member.start(), self.members)
