"""Careers that cannot handle the value ``poison``; the topic comes from the environment."""

from __future__ import annotations

import os

from leaderq import KafkaLeaderCareer, Term
from leaderq.kafka import Record, dead_letter


class Fussy(KafkaLeaderCareer):
    topics = os.environ.get("TOPIC", "")
    offsets = os.environ.get("OFFSETS", "kafka")
    max_records = 20
    on_error = dead_letter()

    def handle_record(self, record: Record, term: Term) -> None:
        if record.value == b"poison":
            raise ValueError("this is poison")
