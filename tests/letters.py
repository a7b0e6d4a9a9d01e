"""Dead letters of a career of the test's own."""

from __future__ import annotations

from leaderq.kafka.clients.producer import Message
from leaderq.kafka.dead_letters.format import new_dead_letter
from leaderq.kafka.dead_letters.replay import replay_group
from leaderq.kafka.record import Record
from leaderq.kafka.topics import committed, create_topics, end_offsets, produce


class Letters:
    """``count`` letters on ``<career>-dead`` about the first records of a topic, one by one of each
    of its partitions.
    """

    def __init__(self, address: str, career: str, count: int, partitions: int = 1) -> None:
        self.address, self.career = address, career
        self.origin, self.topic = f"{career}-origin", f"{career}-dead"
        create_topics(address, {self.origin: partitions, self.topic: partitions})
        letters = [self._letter(n, n % partitions) for n in range(count)]
        produce(address, self.topic, [(each.key, each.value, each.headers) for each in letters])

    def _letter(self, n: int, partition: int) -> Message:
        headers = (("trace", b"t"),)
        at_ms = 1_700_000_000_000 + n
        record = Record(self.origin, partition, n, at_ms, b"k%d" % n, b"order %d" % n, headers)
        error = TimeoutError("bank away") if n % 2 else KeyError("iban")
        told = {"attempts": 3, "term": 5, "career": self.career, "at_ms": 1_790_000_000_000}
        return new_dead_letter(record, error, **told)

    def sent(self) -> int:
        """Records of committed transactions and their markers."""
        return sum(end_offsets(self.address, self.origin).values())

    def progress_noted(self) -> int:
        return committed(self.address, replay_group(self.career), self.topic).get(0, 0)
