"""Effects that nobody can undo: a line in a file for each half of a batch. ``offsets="kafka"``."""

from __future__ import annotations

import json
import os
from pathlib import Path

from paced import Paced

from leaderq import Term
from leaderq.kafka import Record


class Handled(Paced):
    offsets = "kafka"
    batch = 0
    file = -1

    def handle(self, records: list[Record], term: Term) -> None:
        self.batch += 1
        super().handle(records, term)

    def do(self, records: list[Record], term: Term) -> None:
        if self.file < 0:
            path = Path(os.environ["RESULTS"]) / f"{self.candidate_id}-{os.getpid()}.jsonl"
            self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        line = {
            "term": term.number,
            "batch": self.batch,
            "rows": [[row.partition, row.offset] for row in records],
        }
        # One call: a process killed in it has written all or nothing, and what it wrote outlives
        # it.
        os.write(self.file, json.dumps(line).encode() + b"\n")
