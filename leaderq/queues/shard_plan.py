"""Which shards are put into, which are retired or removed, and whether one more is needed (pure).

=========  =========================================================================================
a shard    is
=========  =========================================================================================
fit        put into: since it is new, or came down to half of ``new_queue_threshold``
full       put into only if none is fit: since it reached ``new_queue_threshold``
retired    put into only if there is no other: somebody marked it, or it has numbered ``rotate_at``
           items
removable  retired, and seen empty for ``retire_grace_s``
=========  =========================================================================================

All are consumed. One more is needed when none is fit and there are fewer than ``max_queues`` that
are not retired. Every process judges for itself, and comes to the same; the leader of the latch
alone acts on it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from leaderq.errors import ConfigurationError
from leaderq.queues.wire.names import LAST_SEQUENCE


@dataclass(frozen=True, slots=True)
class QueueSharderPolicies:
    """The first three as in Curator, and with its defaults.

    ``new_queue_threshold``: items that make a shard full; half as many make it fit for more again.
    ``threshold_check_s``: seconds between two looks at the numbers. ``max_queues``: no more shards
    than this are made, those retired not counted.

    ``rotate_at``: a shard that has numbered that many items is retired, for ZooKeeper's counter
    ends at 2^31 - 1 and cannot be set back while the shard lives. ``retire_grace_s``: seconds that
    a retired shard must have been seen empty before it is removed: time for those who use it to
    hear that they should not.
    """

    new_queue_threshold: int = 10_000
    threshold_check_s: float = 30.0
    max_queues: int = 10
    rotate_at: int = 2_000_000_000
    retire_grace_s: float = 60.0

    def __post_init__(self) -> None:
        threshold, most = self.new_queue_threshold, self.max_queues
        check_s, grace_s = self.threshold_check_s, self.retire_grace_s
        ConfigurationError.unless(
            (threshold >= 1, f"new_queue_threshold={threshold!r}: give 1 or more items"),
            (
                0 < check_s < float("inf"),
                f"threshold_check_s={check_s!r}: give a number of seconds above 0",
            ),
            (most >= 1, f"max_queues={most!r}: give 1 or more"),
            (
                0 < self.rotate_at <= LAST_SEQUENCE,
                f"rotate_at={self.rotate_at!r}: give a number from 1 to {LAST_SEQUENCE}",
            ),
            (
                0 <= grace_s < float("inf"),
                f"retire_grace_s={grace_s!r}: give 0 or more seconds",
            ),
        )


@dataclass(frozen=True, slots=True)
class ShardState:
    """What was seen of one: its items, the number of the next, whether it is marked as retired, and
    how long it was seen empty.
    """

    name: str
    items: int
    next_sequence: int = 0
    is_marked: bool = False
    empty_for_s: float = 0.0
    was_full: bool = False


@dataclass(frozen=True, slots=True)
class ShardPlan:
    """Names of shards, each in one of the first three; and what the leader has to do."""

    fit: tuple[str, ...] = ()
    full: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    needs_one_more: bool = False
    is_at_most: bool = False
    """None is fit, and there may be no more."""
    to_mark: tuple[str, ...] = ()
    to_remove: tuple[str, ...] = ()

    @property
    def choice(self) -> tuple[str, ...]:
        return self.fit or self.full or self.retired


def plan_shards(shards: Iterable[ShardState], policies: QueueSharderPolicies) -> ShardPlan:
    fit: list[str] = []
    full: list[str] = []
    retired: list[ShardState] = []
    for shard in shards:
        if shard.is_marked or shard.next_sequence >= policies.rotate_at:
            retired.append(shard)
        elif is_full(shard, policies):
            full.append(shard.name)
        else:
            fit.append(shard.name)
    there_may_be_more = len(fit) + len(full) < policies.max_queues
    return ShardPlan(
        fit=tuple(fit),
        full=tuple(full),
        retired=tuple(shard.name for shard in retired),
        needs_one_more=not fit and there_may_be_more,
        is_at_most=not fit and not there_may_be_more,
        to_mark=tuple(shard.name for shard in retired if not shard.is_marked),
        to_remove=tuple(
            shard.name
            for shard in retired
            if shard.is_marked and not shard.items and shard.empty_for_s >= policies.retire_grace_s
        ),
    )


def is_full(shard: ShardState, policies: QueueSharderPolicies) -> bool:
    """Whether it is, or was and has not come down to the half."""
    if shard.items >= policies.new_queue_threshold:
        return True
    return shard.was_full and shard.items > policies.new_queue_threshold // 2
