"""Deciding that a consumer has stalled: its position stands still although records wait.

Clients have had this fault again and again (kafka-python#2459, #1552, #3106, #3132): a partition is simply not fetched any
more, and no error is given. The cure is a new consumer.

A position may stand still for good reasons, and none of them may count:

* *nobody polls*, because a handler is slow: only polls count as evidence, and an empty one (nothing buffered for any
  partition) for much more than one that gave records of other partitions;
* *an open transaction*: the end is the last stable offset, beyond which there is nothing to read yet;
* *transaction markers, aborted records, or a gap left by compaction at the end*: the client steps over them when it
  fetches, so position and end meet. Should one not, the end does not move either: after a longer while the consumer is
  rebuilt once, and never again for the same position and end.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from leaderq.kafka.record import Partition


@dataclass(frozen=True)
class Sight:
    """One look at one partition; ``polls`` and ``empty_polls`` count since the consumer was made."""

    at_s: float
    position: int
    end: int
    polls: int
    empty_polls: int


@dataclass(frozen=True)
class Limits:
    """How much stillness is too much."""

    still_s: float = 10.0
    polls: int = 100
    empty_polls: int = 10
    unmoved_factor: int = 3


@dataclass(frozen=True)
class Stillness:
    """What is remembered of one partition: the first look at this position, and what a rebuild was already tried for."""

    since: Sight
    tried: tuple[int, int] | None = None


Memory = Mapping[Partition, Stillness]


def judge(
    memory: Memory, sights: Mapping[Partition, Sight], limits: Limits
) -> tuple[dict[Partition, Stillness], list[Partition]]:
    """What to remember after these looks, and which partitions have stalled."""
    after: dict[Partition, Stillness] = {}
    stalled: list[Partition] = []
    for partition, sight in sights.items():
        known = memory.get(partition)
        if known is None or known.since.position != sight.position or sight.position >= sight.end:
            after[partition] = Stillness(since=sight, tried=known.tried if known else None)
        elif _has_stalled(known, sight, limits):
            stalled.append(partition)
            after[partition] = Stillness(since=sight, tried=(sight.position, sight.end))
        else:
            after[partition] = known
    return after, stalled


def rebuilt(memory: Memory) -> dict[Partition, Stillness]:
    """The memory after a new consumer was made, whose polls are counted from 0."""
    return {
        partition: replace(still, since=replace(still.since, polls=0, empty_polls=0)) for partition, still in memory.items()
    }


def _has_stalled(known: Stillness, sight: Sight, limits: Limits) -> bool:
    since = known.since
    was_polled = sight.empty_polls - since.empty_polls >= limits.empty_polls or sight.polls - since.polls >= limits.polls
    if not was_polled or known.tried == (sight.position, sight.end):
        return False
    patience_s = limits.still_s if sight.end > since.end else limits.still_s * limits.unmoved_factor
    return sight.at_s - since.at_s >= patience_s
