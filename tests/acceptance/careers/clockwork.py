"""A career that works by the clock, and tells a witness outside of it: one line each."""

from __future__ import annotations

import os
import time
from typing import Any

from recorder import Recorder

from leaderq import Tick, schedule

EVERY_S, ON_CRASH = float(os.environ["EVERY_S"]), os.environ.get("ON_CRASH", "again")


class Clockwork(Recorder):
    name = "clockwork"

    def execute(self, term: Any) -> None:
        term.wait(0.01)

    @schedule(every_s=EVERY_S, catch_up="all", on_crash=ON_CRASH)
    def tidy(self, tick: Tick) -> None:
        at = round(tick.at.timestamp() * 1000)
        self.note("begun", tick.term, tick=at, attempt=tick.attempt)
        time.sleep(0.02)
        self.note("done", tick.term, tick=at, attempt=tick.attempt)
