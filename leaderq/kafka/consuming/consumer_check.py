"""Looks over the consumer every few seconds: partitions missing, positions that stand still, topics
created again, open transactions in the way. :mod:`leaderq.kafka.consuming.term_consumer` acts on
what is found.

A consumer *stalls* when its position stands still although records wait (B11); the cure is a new
one. What must not count:

* *nobody polls*, because a handler is slow: only polls are evidence, and an empty poll is much
  stronger evidence than one that returned records of other partitions;
* *an open transaction*: the end is the last stable offset;
* *markers, aborted records, or a gap left by compaction at the end*: the client steps over them
  when it fetches. If it does not, the end does not move either: then the consumer is made again
  after a longer time, once, and never again for the same position and end.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from leaderq.errors import UnknownTopic
from leaderq.kafka.clients.consumer import ConsumerClient, Offsets
from leaderq.kafka.consuming.positions import recreated
from leaderq.kafka.record import Partition

log = logging.getLogger(__name__)

STILL_S, UNMOVED_S = 10.0, 30.0
"""A position has stalled after so many seconds; or after the second, if its log's end stands still
too. Until then there must have been so many polls, of which an empty one counts as several:
"""
POLLS, AN_EMPTY_POLL = 100, 10
_GONE_LOOKS = 3
_TELL_OF_TRANSACTION_S = 30.0


@dataclass(frozen=True)
class Observation:
    """One look at one partition; ``polls`` are counted within the term."""

    at_s: float
    position: int
    end: int
    polls: int


class StallWatch:
    """Remembers the first look at each position, and for which stalls the consumer was replaced."""

    def __init__(self) -> None:
        self._since: dict[Partition, Observation] = {}
        self._tried: dict[Partition, tuple[int, int]] = {}

    def find(self, looks: Mapping[Partition, Observation]) -> list[Partition]:
        """Return the partitions that have stalled, by these looks and the earlier ones."""
        before, self._since, stalled = self._since, dict(looks), []
        for where, seen in looks.items():
            since, at = before.get(where), (seen.position, seen.end)
            if since is None or since.position != seen.position or seen.position >= seen.end:
                continue
            still_s = STILL_S if seen.end > since.end else UNMOVED_S
            is_late = seen.at_s - since.at_s >= still_s and seen.polls - since.polls >= POLLS
            if is_late and self._tried.get(where) != at:
                stalled.append(where)
                self._tried[where] = at
            else:
                self._since[where] = since
        return stalled

    def restart(self) -> None:
        """Forget earlier looks: positions were set again, so these prove nothing."""
        self._since = {}


class TransactionWatch:
    """Remembers since when each last stable offset has stood still in front of its log's end."""

    def __init__(self) -> None:
        self._since: dict[Partition, tuple[int, float]] = {}
        self._told: dict[Partition, int] = {}

    def held_back(self, now_s: float, stable: Offsets, log_ends: Offsets) -> dict[Partition, int]:
        """Return, by partition, how many offsets an open transaction holds back, if it has done so
        since the last look. Logs a warning after 30 s.
        """
        before, self._since, found = self._since, {}, {}
        for where, at in stable.items():
            if (count := log_ends.get(where, at) - at) <= 0:
                continue
            since = before.get(where)
            if since is None or since[0] != at:
                self._since[where] = at, now_s
                continue
            self._since[where], found[where] = since, count
            if now_s - since[1] >= _TELL_OF_TRANSACTION_S and self._told.get(where) != at:
                self._told[where] = at
                what = (
                    "an open transaction of some producer holds records back, abort it if that is"
                    " gone partition=%s offset=%d records=%d for_s=%.0f command=%s"
                )
                place = f"--topic {where.topic} --partition {where.number} --start-offset {at}"
                command = f"kafka-transactions abort {place}"
                log.warning(what, where, at, count, now_s - since[1], command)
        return found


@dataclass(frozen=True)
class CheckResult:
    """The result of a look. ``ends``: where each log ends. ``blocked``: how many offsets in front
    of its end an open transaction holds back. ``added``: the consumer must join again, because
    topics or partitions have come or gone. ``stalled``: the first partition that has stalled.
    ``recreated``: topics that were deleted and created again.
    """

    ends: Offsets
    blocked: Offsets
    added: bool
    stalled: tuple[Partition, Observation] | None
    recreated: frozenset[str]


class ConsumerCheck:
    """Looks over a consumer, and remembers earlier looks, within one term. Not thread-safe."""

    def __init__(self, by_pattern: bool) -> None:
        self._by_pattern = by_pattern
        self.stalls = StallWatch()
        self._transactions = TransactionWatch()
        self._missing: frozenset[Partition] = frozenset()
        self._warned = False
        self._polls = 0
        self._gone_looks = 0
        self._topics: frozenset[str] = frozenset()
        self.topic_ids: dict[str, str] = {}

    def polled(self, empty: bool) -> None:
        self._polls += AN_EMPTY_POLL if empty else 1

    def look(
        self, consumer: ConsumerClient, now_s: float, wait_s: float, resting: Collection[Partition]
    ) -> CheckResult:
        """Look over the consumer; asks the brokers where logs end, for up to ``wait_s`` seconds.
        ``resting`` partitions are not being read, so they cannot stall.
        """
        added = self._lacks_topics(consumer) | self.misses(consumer)
        ends, positions = consumer.end_offsets(wait_s), consumer.positions()
        observations = {
            where: Observation(now_s, positions[where], end, self._polls)
            for where, end in ends.items()
            if where in positions and where not in resting
        }
        stalled = self.stalls.find(observations)
        first = (stalled[0], observations[stalled[0]]) if stalled else None
        known = consumer.log_ends()
        blocked = self._transactions.held_back(now_s, ends, known)
        ends = {where: max(end, known.get(where, end)) for where, end in ends.items()}
        return CheckResult(ends, blocked, added, first, self.changed_topics(consumer))

    def changed_topics(self, consumer: ConsumerClient) -> frozenset[str]:
        """Return the topics that were created again. The id of a topic that is gone is kept,
        because the topic may come again.
        """
        ids = consumer.topic_ids()
        changed = recreated(self.topic_ids, ids)
        self.topic_ids = ids | self.topic_ids
        return changed

    def accept(self, consumer: ConsumerClient, topics: frozenset[str]) -> None:
        """Remember the new ids of ``topics``, which were created again and have been dealt with."""
        ids = consumer.topic_ids()
        self.topic_ids |= {topic: ids[topic] for topic in topics if topic in ids}

    def misses(self, consumer: ConsumerClient) -> bool:
        """Whether partitions are missing from this member, others than at the last look. If the
        same are still missing, another member has them: that is logged once.
        """
        existing = consumer.existing()
        self._topics |= {partition.topic for partition in existing}
        missing = existing - consumer.assigned()
        if missing and missing != self._missing:
            self._missing, self._warned = missing, False
            return True
        if missing and not self._warned:
            self._warned = True
            what = (
                "partitions not assigned to this leader, somebody else uses its group partitions=%s"
            )
            log.warning(what, ", ".join(map(str, sorted(missing))))
        self._missing = missing
        return False

    def _lacks_topics(self, consumer: ConsumerClient) -> bool:
        """Whether an assigned topic is gone, if a pattern chooses the topics. If the career names
        them, returns ``False``, or raises ``UnknownTopic`` when one is missing at three looks.
        """
        existing = {partition.topic for partition in consumer.existing()}
        if self._by_pattern:
            return not {partition.topic for partition in consumer.assigned()} <= existing
        gone = self._topics - existing
        self._gone_looks = self._gone_looks + 1 if gone else 0
        if self._gone_looks >= _GONE_LOOKS:
            names = ", ".join(map(repr, sorted(gone)))
            raise UnknownTopic(f"topic {names} was deleted while it was read")
        return False
