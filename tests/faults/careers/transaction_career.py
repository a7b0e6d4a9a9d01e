"""Consume, transform, produce. ``offsets="transaction"``."""

from __future__ import annotations

import json
import os

from paced import Paced

from leaderq import Term
from leaderq.kafka import Record


class Transformed(Paced):
    offsets = "transaction"

    def do(self, records: list[Record], term: Term) -> None:
        for row in records:
            result = json.dumps([row.partition, row.offset, term.number]).encode()
            self.produce(os.environ["OUTPUT"], result, key=row.key, partition=row.partition)
