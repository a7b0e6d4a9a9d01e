"""How puts get to the servers: straight through a tally, after lingering, or as a bounded queue has room."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from leaderq.queues.tallying import Tally
from leaderq.queues.tallying.group import Group


class Way(Protocol):
    """Each group sent hears of its outcome by itself, unless it was withdrawn."""

    def send(self, groups: Sequence[Group]) -> None:
        """In this order, at the next opportunity. Never waits."""

    def withdraw(self, group: Group) -> bool:
        """Give up a group that was certainly not sent; ``False``: too late."""

    def withdraw_those(self, wanted: Callable[[Group], bool]) -> list[Group]:
        """Give up all of these that were certainly not sent, and say which."""

    def hurry(self) -> None:
        """Somebody waits for all of it: do not linger."""

    def close(self) -> None:
        """What waits fails with ``QueueClosed``; what is under way is the tally's."""


class Straight:
    """Through the tally."""

    def __init__(self, tally: Tally) -> None:
        self.send = tally.send
        self.withdraw = tally.withdraw
        self.withdraw_those = tally.withdraw_those

    def hurry(self) -> None:
        """It does not linger."""

    def close(self) -> None:
        """The tally is closed by whoever opened it."""
