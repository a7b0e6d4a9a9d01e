"""Feeds the demo's topic from a thread, at a pace."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator

from leaderq.cli.demo.ad_billing.feed import Feed, numbered
from leaderq.cli.demo.pace import Pace
from leaderq.clock import now_s
from leaderq.errors import LeaderqError
from leaderq.kafka.topics import produce
from leaderq.testing.waiting import patience

_TICK_S = 0.02
_ACKNOWLEDGED_WITHIN_S = 10.0


class Feeding:
    """Feeds ``lines`` to ``topic`` from :meth:`start` on. ``fed`` counts what was given to the producer.

    An error of the producer is kept and raised by :meth:`check`, on the thread that asks.
    """

    def __init__(self, address: str, topic: str, lines: Iterable[str], pace: Pace) -> None:
        self.fed = 0
        self.pace = pace
        self._address = address
        self._topic = topic
        self._records = numbered(lines)
        self._released: tuple[float, int] | None = None
        self._began_s = 0.0
        self._stopped = threading.Event()
        self._failure: LeaderqError | None = None
        self._thread = threading.Thread(target=self._feed, name="leaderq-demo-feed", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._began_s = now_s()
        self._thread.start()

    def release(self) -> None:
        """Feed the rest quickly: no change of leader is to come."""
        self._released = (now_s() - self._began_s, self.fed)

    def check(self) -> None:
        """Raise what the producer raised, if it did."""
        if self._failure is not None:
            raise self._failure

    @property
    def is_done(self) -> bool:
        """Whether everything was fed and acknowledged."""
        return not self._thread.is_alive() and self._failure is None and not self._stopped.is_set()

    def stop(self) -> None:
        """Feed no more; returns when the producer is closed, or after a bound."""
        self._stopped.set()
        if self._thread.ident is not None:
            self._thread.join(_ACKNOWLEDGED_WITHIN_S * patience() + 5.0)

    def _feed(self) -> None:
        try:
            produce(self._address, self._topic, self._paced(), timeout_s=_ACKNOWLEDGED_WITHIN_S * patience())
        except LeaderqError as exc:
            self._failure = exc

    def _paced(self) -> Iterator[Feed]:
        for record in self._records:
            while self.fed >= self.pace.due(now_s() - self._began_s, self._released):
                if self._stopped.is_set():
                    return
                time.sleep(_TICK_S)
            yield record
            self.fed += 1
