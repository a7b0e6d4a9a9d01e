"""The settings of a buffered producer: its policies, and all of them in one value, checked
together."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from leaderq.base.arguments import (
    at_least,
    instance,
    is_text,
    plain_function,
    require,
    timeout,
    unless,
    wanted,
)
from leaderq.producing.account import Lost
from leaderq.producing.journal.journal import ttl_problem
from leaderq.threads import Retry

KeyOf = Callable[[Any], Hashable]


@dataclass(frozen=True)
class Block:
    """The caller waits until there is room, for at most ``timeout_s`` seconds (``None``: for ever);
    after that, ``BufferFull`` is raised.

    :raises ConfigurationError: ``timeout_s`` is not a time.
    """

    timeout_s: float | None = None

    def __post_init__(self) -> None:
        require(timeout("Block.timeout_s", self.timeout_s))


class WhenFull(Enum):
    """What to do without waiting: refuse the new request with ``BufferFull``, drop it, or drop the
    oldest request in memory (not with a journal).
    """

    RAISE = "raise"
    DROP_NEWEST = "drop_newest"
    DROP_OLDEST = "drop_oldest"


FullPolicy: TypeAlias = Block | WhenFull
"""``Block(timeout_s)``, ``WhenFull.RAISE``, ``WhenFull.DROP_NEWEST``, ``WhenFull.DROP_OLDEST``."""


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    """See :class:`~leaderq.producing.BufferedProducer` for the meaning of each."""

    key: KeyOf | None
    max_items: int
    max_bytes: int
    batch_items: int
    batch_bytes: int
    linger_s: float
    when_full: FullPolicy
    ttl_s: float | None
    retry: Retry
    sink_timeout_s: float
    dropped_listener: Callable[[Lost], object] | None
    close_timeout_s: float | None
    name: str

    def share(self, items: int, size: int) -> float:
        """Which share of the memory these take; at 1, the high mark, it is full."""
        return max(items / self.max_items, size / self.max_bytes)

    def check(self, *, has_journal: bool) -> None:
        """Return if all of it can be used.

        :raises ConfigurationError: with every problem found.
        """
        counts = ("max_items", "max_bytes", "batch_items", "batch_bytes")
        functions = ("key", "dropped_listener")
        given = vars(self)
        require(
            *(at_least(name, given[name], 1) for name in counts),
            instance("when_full", self.when_full, Block | WhenFull),
            unless(
                not (has_journal and self.when_full is WhenFull.DROP_OLDEST),
                "when_full=WhenFull.DROP_OLDEST with a journal: what is in a journal is kept; use "
                "Block, RAISE or DROP_NEWEST",
            ),
            instance("retry", self.retry, Retry),
            at_least("linger_s", self.linger_s, 0, "seconds"),
            ttl_problem(self.ttl_s),
            wanted("name", self.name, is_text(self.name), "a str"),
            at_least("sink_timeout_s", self.sink_timeout_s, 0, "seconds"),
            at_least("close_timeout_s", self.close_timeout_s, 0, "seconds", or_none=""),
            *(plain_function(name, given[name], or_none=True) for name in functions),
        )
