"""Where reading begins in a partition that has no offset to go on from (pure).

``policy`` is the career's ``auto_offset_reset``: what the *user said*, or ``None`` where the user said nothing. Saying nothing
means: a group that never committed begins at the first record, so that nothing is skipped; but a position that is *gone* (its
records were deleted, or the topic was, and created again) stops the leader, since only a person can know what was lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from leaderq.errors import KafkaError
from leaderq.kafka.clients.drain import Offsets
from leaderq.kafka.record import Partition

POLICIES = ("earliest", "latest", "none", None)


def starts(
    policy: str | None, fresh: Collection[Partition], known: Collection[Partition], first: Offsets, last: Offsets
) -> dict[Partition, int]:
    """The offset at which each ``fresh`` partition begins; ``known`` are the partitions with an offset.

    A partition added to a topic that is being read begins at its first record, whatever the policy: none of its records was ever
    skipped on purpose.
    """
    topics = {partition.topic for partition in known}
    new = {partition for partition in fresh if partition.topic not in topics}
    if new and policy == "none":
        raise KafkaError(
            f"the group has no offset for {', '.join(map(str, sorted(new)))} and auto_offset_reset is 'none'; "
            "set the group's offsets, or choose 'earliest' or 'latest'"
        )
    return {partition: (last if policy == "latest" and partition in new else first)[partition] for partition in fresh}


def resets(
    policy: str | None, positions: Offsets, recreated: Collection[str], first: Offsets, last: Offsets
) -> dict[Partition, int]:
    """The new offset of each partition whose position is gone; ``recreated`` are topics that are not the ones they were."""
    gone = [
        partition
        for partition, position in positions.items()
        if partition in first
        and (partition.topic in recreated or not first[partition] <= position <= max(last[partition], first[partition]))
    ]
    return {partition: (last if policy == "latest" else first)[partition] for partition in gone}


def recreated(before: Mapping[str, str], now: Mapping[str, str]) -> frozenset[str]:
    """The topics whose id has changed: they were deleted and created again."""
    return frozenset(topic for topic, known in before.items() if now.get(topic, known) != known)


def may_reset(policy: str | None) -> bool:
    """Whether the user said where to go on when a position is gone."""
    return policy in ("earliest", "latest")
