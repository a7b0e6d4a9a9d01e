"""What a drain tells the world: its report in ZooKeeper, events on the bus, and which topics it has read.

For the drain thread, except for the counts of records passed over, which the career thread adds to.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from leaderq.errors import CorruptRecord, NoNode, ZooKeeperError
from leaderq.events import RecordBuried, RecordSkipped
from leaderq.kafka.clients.drain import Offsets
from leaderq.kafka.pumping.report import Estimator, Reporter, decode
from leaderq.kafka.record import Partition, Record
from leaderq.term import Term

if TYPE_CHECKING:
    from leaderq.election.layout import Layout
    from leaderq.kafka.career import KafkaLeaderCareer

log = logging.getLogger(__name__)


class Reporting:
    """Reports for one career, through all its terms."""

    def __init__(self, career: KafkaLeaderCareer, name: str, layout: Layout, dead_letters: str | None) -> None:
        self._career = career
        self._name = name
        self._path = layout.progress
        self._dead_letters = dead_letters
        self._reporter = Reporter(layout.progress)
        self._estimator = Estimator()
        self._term = 0
        self._skipped = self._buried = 0

    def known_topics(self) -> dict[str, str]:
        """The ids of the topics as the last report told them; empty if none did, or if ZooKeeper does not say."""
        try:
            data, _ = self._career.session.get(self._path)
            return dict(decode(data, path=self._path).topic_ids)
        except NoNode:
            return {}
        except (CorruptRecord, ZooKeeperError) as exc:
            log.warning("whether the topics are still the same cannot be told: %s", exc)
            return {}

    def tell(self, term: Term, now_s: float, saved: Offsets, ends: Offsets, topic_ids: Mapping[str, str]) -> None:
        """Publish where the drain stands."""
        if term.number != self._term:
            self._term, self._estimator = term.number, Estimator()
        self._estimator.see(now_s, saved, ends)
        report = self._estimator.report(
            term=term.number,
            at=time.time(),
            group=self._career.group or self._name,
            dead_letters=self._dead_letters,
            skipped=self._skipped,
            buried=self._buried,
            topic_ids=topic_ids,
        )
        self._reporter.publish(term, report)
        self._career.events.publish(report.as_event(self._name, self._career.candidate_id))

    def skipped(self, record: Record, error: Exception, attempts: int) -> None:
        """A record was passed over."""
        self._skipped += 1
        where = str(Partition(record.topic, record.partition))
        self._career.events.publish(
            RecordSkipped(self._name, self._career.candidate_id, where, record.offset, error, attempts)
        )

    def buried(self, record: Record, error: Exception, attempts: int, topic: str) -> None:
        """A record was set aside."""
        self._buried += 1
        where = str(Partition(record.topic, record.partition))
        self._career.events.publish(
            RecordBuried(self._name, self._career.candidate_id, where, record.offset, error, attempts, topic)
        )
