"""The settings of a buffered producer: its policies, and all of them in one value, checked
together."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from leaderq.arguments import (
    instance,
    is_number,
    is_text,
    is_time,
    plain_function,
    require,
    timeout,
    unless,
    wanted,
)
from leaderq.producing.account import BufferState, Lost, Watermarks
from leaderq.threads import Retry

KeyOf = Callable[[Any], Hashable]


@dataclass(frozen=True)
class Block:
    """The caller waits until there is room, ``timeout_s`` at most (``None``: for ever), then
    ``BufferFull`` is raised.

    :raises ConfigurationError: ``timeout_s`` is not a time.
    """

    timeout_s: float | None = None

    def __post_init__(self) -> None:
        require(timeout("Block.timeout_s", self.timeout_s))


class WhenFull(Enum):
    """Without waiting: refuse the new one with ``BufferFull``, drop it, or drop the oldest (of
    those in memory: not with a journal)."""

    RAISE = "raise"
    DROP_NEWEST = "drop_newest"
    DROP_OLDEST = "drop_oldest"


FullPolicy: TypeAlias = Block | WhenFull
"""``Block(timeout_s)``, ``WhenFull.RAISE``, ``WhenFull.DROP_NEWEST``, ``WhenFull.DROP_OLDEST``."""


@dataclass(frozen=True, kw_only=True)
class ProducerOptions:
    """See :class:`~leaderq.producing.BufferedProducer` for the meaning of each."""

    process: Callable[[Any], Any] | None
    key: KeyOf | None
    workers: int
    process_retry: Retry
    max_items: int
    max_bytes: int
    high: float
    low: float
    batch_items: int
    batch_bytes: int
    linger_s: float
    when_full: FullPolicy
    max_waiters: int
    ttl_s: float | None
    retry: Retry
    sink_timeout_s: float
    dropped_listener: Callable[[Lost], object] | None
    state_listener: Callable[[BufferState, BufferState], object] | None
    close_timeout_s: float | None
    name: str

    @property
    def marks(self) -> Watermarks:
        return Watermarks(self.max_items, self.max_bytes, self.high, self.low)

    @property
    def lanes(self) -> int:
        return self.workers if self.process is not None else 0

    def check(self, *, has_journal: bool) -> None:
        """Return if all of it can be used.

        :raises ConfigurationError: with every problem found.
        """
        counts = ("max_items", "max_bytes", "workers", "batch_items", "batch_bytes", "max_waiters")
        functions = ("process", "key", "dropped_listener", "state_listener")
        times = ("linger_s", "sink_timeout_s")
        given = vars(self)
        low, high, workers = self.low, self.high, f"workers={self.workers!r}"
        is_wide = is_number(self.workers) and self.workers > 1
        drops_old = self.when_full is WhenFull.DROP_OLDEST
        require(
            *(
                wanted(name, given[name], _is_count(given[name]), "a whole number from 1 on")
                for name in counts
            ),
            *(wanted(name, given[name], is_time(given[name]), "seconds") for name in times),
            *(
                wanted(name, given[name], value is None or is_time(value), "seconds, or None")
                for name in ("ttl_s", "close_timeout_s")
                for value in [given[name]]
            ),
            instance("when_full", self.when_full, Block | WhenFull),
            *(instance(name, given[name], Retry) for name in ("retry", "process_retry")),
            wanted("name", self.name, is_text(self.name), "a str"),
            unless(
                not (drops_old and has_journal),
                "when_full=WhenFull.DROP_OLDEST with a journal: what is in a journal is kept; use "
                "Block, RAISE or DROP_NEWEST",
            ),
            unless(
                is_number(low) and is_number(high) and 0 <= low < high <= 1,
                f"low={low!r}, high={high!r}: give shares of the memory with 0 <= low < high <= 1",
            ),
            unless(
                self.process is not None or not is_wide,
                f"{workers}: there is no process step for them; give process, or leave workers out",
            ),
            unless(
                self.key is not None or not is_wide,
                f"{workers} without a key: which requests must stay in order? Give key, a callable "
                "of the request",
            ),
            *(plain_function(name, given[name], or_none=True) for name in functions),
        )


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1
