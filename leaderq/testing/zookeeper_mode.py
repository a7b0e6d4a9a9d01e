"""Who leads an ensemble, asked of the servers themselves: the same for servers from jars and in containers."""

from __future__ import annotations

from abc import ABC
from typing import TypeVar

from leaderq.errors import ServerFailed
from leaderq.testing.server import Server
from leaderq.testing.server_group import ServerGroup
from leaderq.testing.waiting import eventually
from leaderq.testing.zookeeper_wire import four_letter_word


class AskedServer(Server, ABC):
    """A ZooKeeper server that answers four-letter words."""

    def ask(self, word: str) -> str:
        """The answer to a four-letter word (``srvr``, ``mntr``, ``cons``, ``dump``...).

        :raises ServerFailed: it did not answer.
        """
        host, _, port = self.address.rpartition(":")
        try:
            return four_letter_word(host, int(port), word)
        except OSError as exc:
            raise ServerFailed(f"{self.name} at {self.address} did not answer {word!r}: {exc}") from exc

    @property
    def mode(self) -> str:
        """``standalone``, ``leader``, ``follower``, or ``""`` while it does not serve."""
        try:
            answer = self.ask("srvr")
        except ServerFailed:
            return ""
        modes = [line.partition(":")[2].strip() for line in answer.splitlines() if line.startswith("Mode:")]
        return modes[0] if modes else ""


A = TypeVar("A", bound=AskedServer)


class LedGroup(ServerGroup[A]):
    """ZooKeeper servers that elect a leader among them."""

    @property
    def leader(self) -> A:
        """The server that leads now; waits for an election that is going on.

        :raises AssertionError: none leads within 30 s (times the patience).
        """
        leading = eventually(
            lambda: [member for member in self.members if member.mode == "leader"],
            message="one server of the ensemble leads",
        )
        return leading[0]

    @property
    def followers(self) -> list[A]:
        """The servers that follow now."""
        return [member for member in self.members if member.mode == "follower"]
