"""Reads the Kafka topic ``words``, in one process at a time; the next leader continues where the
last one stopped.
"""

from collections.abc import Sequence

from leaderq import KafkaLeaderCareer, Term
from leaderq.kafka import Record


class Drain(KafkaLeaderCareer):
    topics = "words"
    max_records = 100

    def inaugurate(self, term: Term) -> None:
        print(f"term {term.number}: {term.candidate} leads", flush=True)

    def handle(self, records: Sequence[Record], term: Term) -> None:
        for record in records:  # committed when this returns; raise, and they are handed out again
            print(
                f"term {term.number}: {record.partition}@{record.offset} {record.value.decode()}",
                flush=True,
            )
