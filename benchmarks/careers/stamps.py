"""Careers that write the instant at which they begin, on the clock that all processes of a host
share.
"""

from __future__ import annotations

import os
from typing import Any

from leaderq import KafkaLeaderCareer, LeaderCareer, Term
from leaderq.base.clock import now_s


def stamp(what: str, term: Term) -> None:
    """Append one line to the file that all candidates of a run share; a single small write is
    whole.
    """
    line = f"{what} {os.environ['CANDIDATE']} {term.number} {now_s():.6f}\n".encode()
    descriptor = os.open(os.environ["STAMPS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line)
    os.close(descriptor)


class Stamps(LeaderCareer):
    """Does nothing but lead."""

    name = "stamps"

    def inaugurate(self, term: Term) -> None:
        stamp("inaugurate", term)

    def execute(self, term: Term) -> None:
        term.wait(60)


class KafkaStamps(KafkaLeaderCareer):
    """Drains a topic and says when its first record of a term was handled."""

    name = "kafka-stamps"
    topics = ("stamps",)
    stamped = 0

    def inaugurate(self, term: Term) -> None:
        stamp("inaugurate", term)

    def handle(self, records: list[Any], term: Term) -> None:
        if self.stamped != term.number:
            stamp("record", term)
            self.stamped = term.number
