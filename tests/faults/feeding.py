"""Records that keep coming while leaders are harmed."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator

from leaderq.kafka.clients.consumer import Offsets
from leaderq.kafka.record import Partition
from leaderq.kafka.topics import Feed, end_offsets, produce

KEYS = 16
PARTITIONS = 4


def plain() -> Iterator[Feed]:
    """Numbered records of some keys, without end."""
    return ((b"k%d" % (number % KEYS), b"%d" % number) for number in itertools.count())


class Feeder:
    """Produces ``records`` in the background, a share at a time, past any fault proxy."""

    def __init__(self, kafka: str, topic: str, records: Iterator[Feed]) -> None:
        self._kafka, self._topic, self._records = kafka, topic, records
        self.fed = 0
        """How many the broker has acknowledged."""

    def feed(self, count: int) -> threading.Thread:
        """Begin to produce the next ``count`` records."""
        share = list(itertools.islice(self._records, count))

        def work() -> None:
            self.fed += produce(self._kafka, self._topic, share)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    def ends(self) -> Offsets:
        """For each partition, the offset after the last record fed."""
        return {
            Partition(self._topic, number): end
            for number, end in end_offsets(self._kafka, self._topic).items()
        }
