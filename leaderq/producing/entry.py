"""One request on its way through a buffered producer, and what is told of one that was given up."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any, NamedTuple

from leaderq.errors import ConfigurationError
from leaderq.producing.account import Reason

KeyOf = Callable[[Any], Hashable]
_NO_MORE = 0  # ids begin at 1
_WRITING = -1


def refuse_without_hash(key: Hashable) -> None:
    """Return if ``key`` can be told from others, which it must be before its request is counted anywhere.

    :raises ConfigurationError: it has no hash.
    """
    try:
        hash(key)
    except TypeError as exc:
        raise ConfigurationError(
            f"key gave a {type(key).__name__} for a request, and that has no hash; give a str, bytes, number or a tuple of these"
        ) from exc


class Entry:
    """One object to a request, however many steps it goes through. ``deadline`` and ``since_s`` are of ``clock.now_s``."""

    __slots__ = (
        "attempts",
        "data",
        "deadline",
        "journal_id",
        "key",
        "output",
        "request",
        "seq",
        "since_s",
        "size",
        "waiter",
    )

    def __init__(
        self,
        request: Any,
        key: Hashable,
        size: int,
        since_s: float,
        deadline: float | None = None,
        waiter: Future[None] | None = None,
        journal_id: int | None = None,
    ) -> None:
        self.request = request
        self.output = request
        """What the sink is given: the request itself, until the process step has made something of it."""
        self.data: bytes | None = None
        """The request as bytes, on its way to the journal only."""
        self.key = key
        self.size = size
        self.since_s = since_s
        self.deadline = deadline
        self.waiter = waiter
        self.journal_id = journal_id
        self.seq = 0
        self.attempts = 0

    @property
    def is_journaled(self) -> bool:
        """Whether the journal holds it, or is about to."""
        return bool(self.journal_id)

    @property
    def is_stored(self) -> bool:
        """Whether the journal holds it, under a known id."""
        return self.journal_id is not None and self.journal_id > _NO_MORE

    def mark_writing(self) -> None:
        """The journal has taken it, and will tell its id."""
        self.journal_id = _WRITING

    @property
    def is_kept_out(self) -> bool:
        """Whether the journal will never hold it."""
        return self.journal_id == _NO_MORE

    def forget_journal(self) -> None:
        """The journal does not hold it any more, and must not take it again behind younger ones."""
        self.journal_id = _NO_MORE

    def is_expired(self, now: float) -> bool:
        """Whether its deadline has passed."""
        return self.deadline is not None and now >= self.deadline


class Lost(NamedTuple):
    """A request that was accepted and given up: dropped by a policy, or failed. ``request`` is ``None`` if it cannot be
    read any more."""

    request: Any
    key: Hashable
    reason: Reason
    error: BaseException | None = None
