"""Careers driven by hand on a real broker: what the runner does, without an election."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

from terms import open_term

from leaderq.base.clock import now_s
from leaderq.config import Settings
from leaderq.events import EventBus
from leaderq.kafka import KafkaLeaderCareer, Record
from leaderq.term import OpenTerm, Reason, Term
from leaderq.testing.waiting import patience
from leaderq.zookeeper import Session

_numbers = itertools.count(1)


def new_term(session: Session) -> OpenTerm:
    """A term that lasts, whose writes are carried out without a fence."""
    return open_term(next(_numbers), lasts_s=3600, write=lambda _term, ops: session.multi(ops))


class Recorder(KafkaLeaderCareer):
    def __init__(self) -> None:  # on purpose without super().__init__()
        self.seen: list[Record] = []

    def inaugurate(self, term: Term) -> None:
        """On purpose without super()."""

    def handle(self, records: Sequence[Record], term: Term) -> None:
        self.seen.extend(records)

    def handOver(self, term: Term) -> None:  # noqa: N802
        """On purpose without super()."""

    def values(self) -> list[bytes]:
        return [record.value for record in self.seen]


class Forwarding(Recorder):
    """Sends each record on, in the transaction of its offsets: to ``out``, or beside its topic."""

    offsets = "transaction"
    out = ""

    def handle(self, records: Sequence[Record], term: Term) -> None:
        super().handle(records, term)
        for record in records:
            self.produce(self.out or f"{record.topic}-out", record.value, key=record.key)


def given(career: Any, session: Session, id: str, /, **settings: Any) -> Any:
    """``career`` with what the runner and the election give it."""
    career.settings = Settings(**settings)
    session.ensure_path(f"{career.settings.root}/{career.settings.career}")
    career.events, career.candidate_id, career.session = EventBus(), id, session
    return career


class Driver:
    def __init__(self, career: KafkaLeaderCareer) -> None:
        self.career: Any = career
        self.term = new_term(career.session)

    def begin(self) -> Driver:
        self.term = new_term(self.career.session)
        self.career._begin(self.term)
        self.career.inaugurate(self.term)
        return self

    def run_until(self, fact: Callable[[], bool], *, within_s: float = 60.0) -> None:
        """Execute unit after unit; a busy machine is given more time."""
        end = now_s() + within_s * patience()
        while not fact():
            assert now_s() < end, "the fact did not come true"
            self.career.execute(self.term)

    def end(self) -> None:
        self.term.wind_up(Reason.STEP_DOWN)
        self.career.handOver(self.term)
        self.career._finish(self.term)
        self.term.close()
