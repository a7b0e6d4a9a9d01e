"""The live part of the screen: who leads, and how the work goes on; looked up a few times a second on a thread of its own."""

from __future__ import annotations

import threading
import time
from collections import deque

from leaderq.cli.demo.stage import Stage
from leaderq.clock import now_s
from leaderq.election.observer import View
from leaderq.errors import LeaderqError

_INTERVAL_S = 0.25
_RATE_OVER_S = 2.0


class Monitor:
    """Shows ``stage`` on its screen from entering the ``with`` block to leaving it."""

    def __init__(self, stage: Stage) -> None:
        self._stage = stage
        self._seen: deque[tuple[float, int]] = deque()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leaderq-demo-monitor", daemon=True)

    def __enter__(self) -> Monitor:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(5)
        self._stage.screen.show(())

    def _run(self) -> None:
        while not self._stopped.wait(_INTERVAL_S):
            try:
                view = self._stage.observer.view()
            except LeaderqError:
                continue  # the story, which asks the same, says what is wrong
            billed, _ = self._stage.billed()
            self._stage.screen.show(status(view, self._stage.feeding.fed, billed, self._rate(billed), time.time()))

    def _rate(self, billed: int) -> float:
        now = now_s()
        self._seen.append((now, billed))
        while now - self._seen[0][0] > _RATE_OVER_S:
            self._seen.popleft()
        then, before = self._seen[0]
        return (billed - before) / (now - then) if now > then else 0.0


def status(view: View, fed: int, billed: int, rate: float, now: float) -> list[str]:
    """Two lines: the leadership, the work (pure)."""
    waiting = ", ".join(each for each in view.candidates if each != view.leader) or "nobody"
    if view.leader is None:
        lead = f"leader -   term {view.term}, over   waiting: {waiting}"
    else:
        since = f"{max(0.0, now - view.began):.1f} s" if view.began else "-"
        lead = f"leader {view.leader}   term {view.term}, {view.stage}, for {since}   waiting: {waiting}"
    return [lead, f"fed {fed:,}   billed {billed:,}   lag {max(0, fed - billed):,}   {rate:,.0f} records/s"]
