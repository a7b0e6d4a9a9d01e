"""A career that never looks at its term, and whose process is stopped in the worst moment."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from leaderq import LeaderCareer, Term
from leaderq.events import Stage, StageBegan

sys.path.insert(0, str(Path(__file__).parents[1]))
from marks import Marks


class Unheeding(LeaderCareer):
    """Stops in a unit when it finds ``<id>.stop`` in the folder ``MARKS``.

    After that its units are so short that no other thread gets the processor between two of them.
    If it finds ``<id>.stop-before`` it stops right before it is inaugurated.
    """

    name = "unheeding"

    def prepare(self) -> None:
        self._file = Path(os.environ["MARKS"]) / self.candidate_id
        self._marks = Marks(self._file)
        self._has_stopped = False
        self.events.subscribe(StageBegan, self._stage_began)

    def inaugurate(self, term: Term) -> None:
        self._marks.inaugurate(term.number)

    def execute(self, term: Term) -> None:
        self._marks.begin_unit(term.number)
        if not self._has_stopped:
            time.sleep(0.001)
            self._stop_if_wished(".stop")

    def _stage_began(self, event: StageBegan) -> None:
        if event.stage is Stage.INAUGURATION:
            self._stop_if_wished(".stop-before")

    def _stop_if_wished(self, wish: str) -> None:
        if self._file.with_suffix(wish).exists():
            self._has_stopped = True
            # To this thread: one to the process may be taken by another, and this one go on a
            # while.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
