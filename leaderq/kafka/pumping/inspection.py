"""Looks over the drain every few seconds: partitions that are missing, consumers that stall, topics that are not what they were.

What is found is only told; :mod:`leaderq.kafka.pumping.draining` acts on it when nothing is in hand.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from leaderq.errors import UnknownTopic
from leaderq.kafka.clients.drain import Drain, Offsets
from leaderq.kafka.pumping import stall
from leaderq.kafka.pumping.beginnings import recreated
from leaderq.kafka.record import Partition

log = logging.getLogger(__name__)

_GONE_LOOKS = 3


@dataclass(frozen=True)
class Found:
    """What a look has shown: the ends of all partitions, whether to ask for partitions anew, what stalls, what was made anew."""

    ends: Offsets
    added: bool
    stalled: tuple[Partition, stall.Sight] | None
    recreated: frozenset[str]


class Inspection:
    """What is remembered between looks, within one term. Not thread-safe."""

    def __init__(self, limits: stall.Limits) -> None:
        self._limits = limits
        self._memory: dict[Partition, stall.Stillness] = {}
        self._missing: frozenset[Partition] = frozenset()
        self._warned = False
        self._polls = self._empty_polls = 0
        self._gone_looks = 0
        self.topic_ids: dict[str, str] = {}

    def polled(self, empty: bool) -> None:
        """A poll has waited for records."""
        self._polls += 1
        self._empty_polls += empty

    def look(self, drain: Drain, now_s: float, wait_s: float) -> Found:
        """One look; asks the brokers for positions and ends."""
        self._require_topics(drain)
        added = self.misses(drain)
        ends, positions = drain.end_offsets(wait_s), drain.positions()
        sights = {
            where: stall.Sight(now_s, positions[where], end, self._polls, self._empty_polls)
            for where, end in ends.items()
            if where in positions
        }
        self._memory, stalled = stall.judge(self._memory, sights, self._limits)
        return Found(
            ends=ends,
            added=added,
            stalled=(stalled[0], sights[stalled[0]]) if stalled else None,
            recreated=self.changed_topics(drain),
        )

    def changed_topics(self, drain: Drain) -> frozenset[str]:
        """Topics whose id is not the one known so far."""
        ids = drain.topic_ids()
        changed = recreated(self.topic_ids, ids)
        self.topic_ids = {**ids, **{topic: known for topic, known in self.topic_ids.items() if topic in changed}}
        return changed

    def accept(self, drain: Drain, topics: frozenset[str]) -> None:
        """Topics created again were dealt with: know them by their new ids."""
        self.topic_ids.update({topic: found for topic, found in drain.topic_ids().items() if topic in topics})

    def misses(self, drain: Drain) -> bool:
        """Whether the topics have partitions that are not held, seen for the first time; the second time they are another's."""
        missing = drain.existing() - drain.assigned()
        if missing and missing != self._missing:
            self._missing, self._warned = missing, False
            return True
        if missing and not self._warned:
            self._warned = True
            log.warning(
                "partitions %s are not given to this leader; who else uses its group?", ", ".join(map(str, sorted(missing)))
            )
        self._missing = missing
        return False

    def repositioned(self) -> None:
        """Positions were set anew: what stood still before proves nothing."""
        self._memory = {}

    def rebuilt(self) -> dict[Partition, stall.Stillness]:
        """The consumer is made anew because it stalled: what is to be remembered of that."""
        self._polls = self._empty_polls = 0
        return stall.rebuilt(self._memory)

    def remember(self, memory: dict[Partition, stall.Stillness]) -> None:
        """What a rebuild was tried for already."""
        self._memory = memory

    def _require_topics(self, drain: Drain) -> None:
        """A topic that is gone from several looks in a row was deleted (one look may fall into a change of metadata)."""
        known = set(self.topic_ids)
        gone = known - {partition.topic for partition in drain.existing()}
        self._gone_looks = self._gone_looks + 1 if gone else 0
        if self._gone_looks >= _GONE_LOOKS:
            raise UnknownTopic(f"topic {', '.join(map(repr, sorted(gone)))} was deleted while it was read")
