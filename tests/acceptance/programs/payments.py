"""Books payments from a topic into SQLite, each once; what is no payment is set aside."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence

from leaderq import EndingTerm, KafkaLeaderCareer, Term
from leaderq.kafka import DatabaseOffsets, Partition, PoisonRecord, Record, dead_letter, retry


class Payments(KafkaLeaderCareer):
    topics = "payments"
    offsets = "external"
    value_deserializer = json.loads
    on_error = retry(1, backoff_s=0.01, then=dead_letter())

    def prepare(self) -> None:
        super().prepare()
        self.database = sqlite3.connect(self.options["database"])
        self.store = DatabaseOffsets(self.database, career="payments")
        self.store.create_table()
        self.database.execute("CREATE TABLE IF NOT EXISTS booked (account TEXT, cents INTEGER)")

    def load_offsets(self, term: Term) -> Mapping[Partition, int]:
        return self.store.load(term)

    def handle(self, records: Sequence[Record], term: Term) -> None:
        with self.store.transaction(records, term) as cursor:
            for record in records:
                try:
                    row = record.value["account"], int(record.value["cents"])
                except (KeyError, ValueError) as exc:
                    raise PoisonRecord(record) from exc
                cursor.execute("INSERT INTO booked VALUES (?, ?)", row)

    def hand_over(self, term: EndingTerm) -> None:
        print(f"term {term.number} is over: {term.reason.sentence}")

    def retire(self) -> None:
        self.database.close()
        super().retire()
