"""What the demo feeds, how fast, and the thread that does."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from leaderq.cli.demo.ad_billing.feed import Feed, numbered
from leaderq.cli.demo.ad_billing.traffic import generated, read
from leaderq.clock import now_s
from leaderq.errors import ConfigurationError, LeaderqError
from leaderq.kafka.topics import produce
from leaderq.testing.waiting import patience


@dataclass(frozen=True)
class InputLines:
    """Where the lines come from, as a phrase, and the lines."""

    origin: str
    lines: Iterator[str]


def choose(path: Path | None, records: int) -> InputLines:
    """``records`` lines of ``path``; ``None``: made up.

    Raises :class:`~leaderq.errors.ConfigurationError` if the file cannot be read or is empty.
    """
    if path is None:
        return InputLines("lines made up with the skew of a real access log", generated(records))
    try:
        return InputLines(f"the lines of {path}", read(path, records))
    except (OSError, ValueError) as exc:
        raise ConfigurationError(
            f"--input {str(path)!r} cannot be used: {exc}; name a file with lines of an access log"
        ) from exc


_KEPT_BACK = 0.1
_CATCH_UP = 2.0


@dataclass(frozen=True)
class Pace:
    """``records`` spread over ``planned_s`` seconds.

    A tenth is kept back and fed thinly should the changes take longer than planned, so that each of
    them has records on both sides; once they are over, what is left is fed at twice the rate.
    """

    records: int
    planned_s: float

    @property
    def rate(self) -> float:
        """Records a second, as planned."""
        return self.records * (1 - _KEPT_BACK) / self.planned_s

    def due(self, elapsed_s: float, released: tuple[float, int] | None) -> int:
        """How many records should have been fed ``elapsed_s`` after the first.

        ``released``: when the changes were over, and how many were fed by then.
        """
        if released is not None:
            at_s, fed = released
            return min(self.records, fed + 1 + int(_CATCH_UP * self.rate * (elapsed_s - at_s)))
        steady = self.rate * min(elapsed_s, self.planned_s)
        thin = self.rate * _KEPT_BACK * max(0.0, elapsed_s - self.planned_s)
        # The last one waits: after it nothing would show who bills.
        return max(1, min(self.records - 1, 1 + int(steady + thin)))


_TICK_S = 0.02
_ACKNOWLEDGED_WITHIN_S = 10.0


class Feeding:
    """Feeds ``lines`` to ``topic`` from :meth:`start` on. ``fed`` counts what was given to the
    producer.

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
            produce(
                self._address,
                self._topic,
                self._paced(),
                timeout_s=_ACKNOWLEDGED_WITHIN_S * patience(),
            )
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
