"""The thread that gives batches to the sink, one after the other, each until it is settled.

The next batch is not begun before the last is settled, so the order holds over retries too. On each failure:

* ``SinkAway``: the batch is given again after a pause (back-off with jitter); after several in a row the breaker opens;
* ``SinkBusy``: the same batch is given again at once; the sink itself waits;
* ``SinkBroken``, any exception that the sink should not have raised, and an outcome that cannot be of its batch: the
  breaker opens at once, and what follows is logged once until it goes well again. Nothing is given up for it: the whole
  batch is given again;
* a record is refused: it has failed; the others go on;
* the sink never returns: the closing producer leaves it behind; what it says later is heard by nobody.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Sequence

from leaderq.clock import now_s
from leaderq.errors import SinkAway, SinkBroken, SinkBusy
from leaderq.producing.account import Reason
from leaderq.producing.entry import Entry
from leaderq.producing.patience import Breaker, Retry, Standing
from leaderq.producing.sinks.sink import ALL_CONFIRMED, Outcome, Sink, checked
from leaderq.producing.stock import Gone, Stock

log = logging.getLogger(__name__)


class Sender:
    """See the module."""

    def __init__(self, stock: Stock, sink: Sink, retry: Retry, sink_timeout_s: float, name: str) -> None:
        self._stock = stock
        self._sink = sink
        self._retry = retry
        self._sink_timeout_s = sink_timeout_s
        self._name = name
        self._pause = threading.Event()
        self._chance = random.Random()
        self._said: str | None = None
        self.standing = Standing()
        self.is_busy = False
        self.batches = 0
        self.retries = 0
        self.last_error: BaseException | None = None
        self.thread = threading.Thread(target=self._run, name=f"leaderq-{name}-sender", daemon=True)

    def _run(self) -> None:
        while batch := self._stock.take_batch():
            self.batches += 1
            while batch and not self._stock.is_stopped:
                batch = self._tried(batch)

    def _tried(self, batch: list[Entry]) -> list[Entry]:
        """One attempt; gives those that are still to be sent."""
        if not self.is_busy:
            self._wait_for_turn()
            batch = self._unexpired(batch)
            if not batch or self._stock.is_stopped:
                return []
        try:
            outcome = checked(self._sink.send([entry.output for entry in batch], self._sink_timeout_s), len(batch))
        except SinkBusy as exc:
            self.is_busy = True
            self._note(exc)
            return batch
        except SinkAway as exc:
            outcome = Outcome(again=range(len(batch)), error=exc)
        except BaseException as exc:  # noqa: BLE001 - a sink that does not know its own errors; also SystemExit: this must go on
            outcome = Outcome(again=range(len(batch)), error=exc if isinstance(exc, SinkBroken) else _unknown(exc))
        self.is_busy = False
        return self._heard(batch, outcome)

    def _heard(self, batch: list[Entry], outcome: Outcome) -> list[Entry]:
        if outcome is ALL_CONFIRMED:
            self._well()
            self._stock.settle(batch)
            return []
        again = set(outcome.again)
        gone: list[Gone] = [(batch[at], Reason.REFUSED, error) for at, error in outcome.refused.items()]
        left = [batch[at] for at in sorted(again)]
        self._stock.settle((entry for at, entry in enumerate(batch) if at not in again and at not in outcome.refused), gone)
        if outcome.error is None:
            self._well()
            return left
        self._ill(outcome.error)
        return self._persevering(left, outcome.error)

    def _persevering(self, left: list[Entry], error: BaseException) -> list[Entry]:
        """Those that may be tried again."""
        most = self._retry.max_attempts
        if most is None:
            return left
        for entry in left:
            entry.attempts += 1
        self._stock.settle((), [(entry, Reason.ATTEMPTS, error) for entry in left if entry.attempts >= most])
        return [entry for entry in left if entry.attempts < most]

    def _wait_for_turn(self) -> None:
        while (left_s := self.standing.wait_until_s - now_s()) > 0 and not self._stock.is_stopped:
            self._pause.wait(left_s)
        self.standing = self.standing.at(now_s())

    def _unexpired(self, batch: list[Entry]) -> list[Entry]:
        now = now_s()
        expired: Sequence[Gone] = [(entry, Reason.EXPIRED, None) for entry in batch if entry.is_expired(now)]
        if not expired:
            return batch
        self._stock.settle((), expired)
        return [entry for entry in batch if not entry.is_expired(now)]

    def _well(self) -> None:
        if self._said is not None:
            log.info("producer %s: the sink takes records again", self._name)
        self._said = self.last_error = None
        self.standing = self.standing.succeeded()

    def _ill(self, error: BaseException) -> None:
        self.retries += 1
        is_fatal = isinstance(error, SinkBroken)
        self.standing = self.standing.failed(self._retry, now_s(), self._chance.random, is_fatal=is_fatal)
        self._note(error)

    def _note(self, error: BaseException) -> None:
        self.last_error = error
        if self._said != type(error).__name__:  # each attempt would say it again
            self._said = type(error).__name__
            log.warning("producer %s: the sink takes nothing at the moment, what is sent is kept: %s", self._name, error)

    @property
    def breaker(self) -> Breaker:
        """Whether the sink is tried."""
        return self.standing.breaker

    def stop(self) -> None:
        """Cut a pause short."""
        self._pause.set()


def _unknown(error: BaseException) -> SinkBroken:
    broken = SinkBroken(f"the sink raised {type(error).__name__}: {error}")
    broken.__cause__ = error
    return broken
