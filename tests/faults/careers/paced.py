"""What the careers under faults have in common: small batches, each with a pause in its middle,
where faults strike.

``HOLD`` is a folder: a leader that finds a file with its candidate's name there stops in the middle
of its batch, says so by a file ``NAME.held``, and goes on when the file is gone, whatever has
become of its term.

``RUDE``: the pause is up to ten times as long, and nothing ends it. ``FLAKY`` is how often a batch
fails in its middle, and is tried again; ``WORKERS``: how many partitions are handled at once.
"""

from __future__ import annotations

import os
import random
import time
from abc import abstractmethod
from pathlib import Path
from typing import ClassVar

from leaderq import Term
from leaderq.kafka import KafkaLeaderCareer, Record, retry

TOPIC = os.environ["TOPIC"]
PAUSE_S = float(os.environ.get("PAUSE_S", "0.03"))
HOLD = Path(os.environ["HOLD"])
FLAKY = float(os.environ.get("FLAKY", "0"))
RUDE = "RUDE" in os.environ


class Paced(KafkaLeaderCareer):
    # Servers are shared by all tests: names must not be.
    name = TOPIC
    group = TOPIC
    topics = TOPIC
    max_records: ClassVar[int] = 20
    client = os.environ.get("CLIENT", "kafka-python")
    workers = int(os.environ.get("WORKERS", "1"))
    on_error = retry(20, 0.01) if FLAKY else "raise"

    def handle(self, records: list[Record], term: Term) -> None:
        middle = len(records) // 2
        self.do(records[:middle], term)
        self.pause(term)
        if random.random() < FLAKY:
            raise RuntimeError("what FLAKY asks for")
        self.do(records[middle:], term)

    @abstractmethod
    def do(self, records: list[Record], term: Term) -> None:
        """Half a batch."""

    def pause(self, term: Term) -> None:
        """The middle of a batch."""
        if RUDE:
            time.sleep(PAUSE_S * random.uniform(0, 10) ** 2 / 10)
        else:
            term.wait(PAUSE_S)
        wish = HOLD / self.candidate_id
        if wish.exists():
            (HOLD / f"{self.candidate_id}.held").touch()
            while wish.exists():
                time.sleep(0.01)
