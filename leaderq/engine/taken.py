"""What a queue of either kind hands out, until it is settled."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from types import TracebackType
from typing import TypeVar

from leaderq.errors import LeaderqError

log = logging.getLogger(__name__)
T = TypeVar("T", bound="Taken")


class Taken(ABC):
    """An item or message that was handed out. Leaving its ``with`` block settles it, unless it is
    settled: at a clean end it is acknowledged; if the block raises, it has failed; if the process
    is being ended, or the task, it is given back, because that is not its fault.
    """

    @property
    @abstractmethod
    def is_settled(self) -> bool: ...

    @abstractmethod
    def ack(self) -> object: ...

    @abstractmethod
    def _failed(self, error: BaseException) -> object: ...

    @abstractmethod
    def _given_back(self) -> object: ...

    def __enter__(self: T) -> T:
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        if self.is_settled:
            return
        if error is None:
            self.ack()
            return
        try:
            if isinstance(error, Exception):
                self._failed(error)
            else:
                self._given_back()
        except LeaderqError as exc:  # the caller must hear what the block raised
            log.warning("not settled, it goes back by itself what=%r error=%s", self, exc)
