"""Careers that write down what they may do, and when, on the clock of the host."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from leaderq import Deposed, LeaderCareer, LeaderqError, Term
from leaderq.base.clock import now_s
from leaderq.zookeeper import SetData


class Recorder(LeaderCareer):
    """Believes in its term many times a second, and says so; what is refused to it, it writes down
    too.
    """

    name = "recorder"

    def prepare(self) -> None:
        self.history = open(os.environ["HISTORY"], "a", buffering=1)  # noqa: SIM115, PTH123  (closed by retire)

    def retire(self) -> None:
        self.history.close()

    def note(self, what: str, term: Term, **more: Any) -> None:
        line = {
            "at": now_s(),
            "what": what,
            "term": term.number,
            "who": self.candidate_id,
            "pid": os.getpid(),
            **more,
        }
        self.history.write(json.dumps(line) + "\n")

    def inaugurate(self, term: Term) -> None:
        self.note("inaugurate", term, unclean=term.unclean)

    def execute(self, term: Term) -> None:
        try:
            term.check()
        except Deposed as deposed:
            self.note("check refused", term, reason=deposed.reason.value)
            self.try_to_write(term)
            raise
        self.note("believed", term)
        term.wait(0.01)

    def try_to_write(self, term: Term) -> None:
        """Around the local check, as a zombie's bug would: ZooKeeper itself must refuse."""
        try:
            term._fenced_write(term, (SetData("/zombie", b"%d" % term.number),))
            self.note("write passed", term)
        except LeaderqError as refused:
            self.note("write refused", term, error=type(refused).__name__)

    def handOver(self, term: Term) -> None:  # noqa: N802
        self.note("handOver", term, reason=term.reason.value if term.reason else None)


class Slow(Recorder):
    name = "recorder"

    def execute(self, term: Term) -> None:
        self.note("unit began", term)
        time.sleep(1.0)
        self.note("unit done", term)


class Failing(Recorder):
    name = "recorder"

    def execute(self, term: Term) -> None:
        raise RuntimeError("no ink in the pen")
