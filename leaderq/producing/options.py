"""The settings of a buffered producer: its policies, and all of them in one value, checked
together."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from leaderq.errors import ConfigurationError
from leaderq.plain import require_plain_function
from leaderq.producing.account import BufferState, Lost, Watermarks
from leaderq.threads import Retry

KeyOf = Callable[[Any], Hashable]


@dataclass(frozen=True)
class Block:
    """The caller waits until there is room, ``timeout_s`` at most (``None``: for ever), then
    ``BufferFull`` is raised."""

    timeout_s: float | None = None


class WhenFull(Enum):
    """Without waiting: refuse the new one with ``BufferFull``, drop it, or drop the oldest ones."""

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

    def check(self) -> None:
        """Return if all of it can be used.

        :raises ConfigurationError: with every problem found.
        """
        counts = ("max_items", "max_bytes", "workers", "batch_items", "batch_bytes", "max_waiters")
        times = ("linger_s", "ttl_s", "sink_timeout_s", "close_timeout_s")
        told = {name: getattr(self, name) for name in (*counts, *times)}
        problems = [f"{name}={told[name]!r}: give 1 or more" for name in counts if told[name] < 1]
        problems += [
            f"{name}={told[name]!r}: give 0 or more seconds"
            for name in times
            if told[name] is not None and told[name] < 0
        ]
        if not 0 <= self.low < self.high <= 1:
            problems.append(
                f"low={self.low!r}, high={self.high!r}: "
                "give shares of the memory with 0 <= low < high <= 1"
            )
        if self.workers > 1 and self.process is None:
            problems.append(
                f"workers={self.workers!r}: there is no process step for them; give process, or "
                "leave workers out"
            )
        if self.workers > 1 and self.key is None:
            problems.append(
                f"workers={self.workers!r} without a key: which requests must stay in order? Give "
                "key, a callable of the request"
            )
        for name in ("process", "key", "dropped_listener", "state_listener"):
            if (function := getattr(self, name)) is not None:
                try:
                    require_plain_function(function, name)
                except ConfigurationError as exc:
                    problems += exc.problems
        if problems:
            raise ConfigurationError(*problems)
