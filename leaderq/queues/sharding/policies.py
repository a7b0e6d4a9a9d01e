"""When a shard is full, when it is worn out, and how many there may be (pure)."""

from __future__ import annotations

from dataclasses import dataclass

from leaderq.errors import ConfigurationError
from leaderq.queues.wire.names import LAST_SEQUENCE


@dataclass(frozen=True, slots=True)
class QueueSharderPolicies:
    """The first three as in Curator, and with its defaults.

    ``new_queue_threshold``: items that make a shard full; half as many make it fit for more again. ``threshold_check_s``: seconds
    between two looks at the numbers. ``max_queues``: no more shards than this are made, those retired not counted.

    ``rotate_at``: a shard that has numbered so many items is retired, for ZooKeeper's counter ends at 2^31 - 1 and cannot be set back
    while the shard lives. ``retire_grace_s``: seconds that a retired shard must have been seen empty before it is removed: time for
    those who use it to hear that they should not.
    """

    new_queue_threshold: int = 10_000
    threshold_check_s: float = 30.0
    max_queues: int = 10
    rotate_at: int = 2_000_000_000
    retire_grace_s: float = 60.0

    def __post_init__(self) -> None:
        problems = []
        if self.new_queue_threshold < 1:
            problems.append(f"new_queue_threshold={self.new_queue_threshold!r}: give 1 or more items")
        if not 0 < self.threshold_check_s < float("inf"):
            problems.append(f"threshold_check_s={self.threshold_check_s!r}: give a number of seconds above 0")
        if self.max_queues < 1:
            problems.append(f"max_queues={self.max_queues!r}: give 1 or more")
        if not 0 < self.rotate_at <= LAST_SEQUENCE:
            problems.append(f"rotate_at={self.rotate_at!r}: give a number from 1 to {LAST_SEQUENCE}")
        if not 0 <= self.retire_grace_s < float("inf"):
            problems.append(f"retire_grace_s={self.retire_grace_s!r}: give 0 or more seconds")
        if problems:
            raise ConfigurationError(*problems)
