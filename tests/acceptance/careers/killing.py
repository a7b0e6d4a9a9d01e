"""A career whose process is gone, without a word, as soon as it sees one certain record."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

from recorder import Recorder

from leaderq import KafkaLeaderCareer, Term
from leaderq.kafka.handling.on_error import dead_letter


class Killed(KafkaLeaderCareer):
    name = "killed"
    topics = os.environ["TOPIC"]
    group = os.environ["TOPIC"]
    max_records = 10
    on_error = dead_letter(os.environ["TOPIC"] + "-dead", deaths=2)

    prepare_history = Recorder.prepare
    note = Recorder.note

    def prepare(self) -> None:
        super().prepare()
        self.prepare_history()

    def handle(self, records: Sequence[Any], term: Term) -> None:
        for record in records:
            if record.value == b"kill":
                os.kill(os.getpid(), signal.SIGKILL)
        for record in records:
            self.note("handled", term, value=record.value.decode(), together=len(records))
