"""The thread that gives batches to the sink, one at a time.

Requests of one key go in order, over retries too. Without a ``key`` all is one line: the next batch
is not begun before the last is settled. With one, requests that are to be given again hold back
those of their keys only, and the rest goes on beside them, until half of the memory's items are
held back; then all wait. On each failure:

* ``SinkAway``: the batch is given again after a pause (back-off with jitter);
* ``SinkBusy``: the sink itself goes on with the batch, or with those it names. A batch is given
  again at once; those that are named are given again as others that are held back, but neither
  expire meanwhile nor count an attempt;
* ``SinkBroken``, any exception that the sink should not have raised, and an outcome that cannot be
  of its batch: the longest pause at once, and what follows is logged once until it goes well again.
  Nothing is given up for it: the whole batch is given again;
* a record is refused: it has failed; the others go on;
* the sink never returns: the closing producer leaves it behind; what it says later is ignored.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Hashable

from leaderq.clock import now_s
from leaderq.errors import SinkAway, SinkBroken, SinkBusy
from leaderq.producing.account import LossReason
from leaderq.producing.buffer import Gone, RequestBuffer
from leaderq.producing.memory import BufferedRequest
from leaderq.producing.options import ProducerOptions
from leaderq.producing.sinks.sink import ALL_CONFIRMED, BatchOutcome, Sink, checked
from leaderq.threads import Backoff, Service

log = logging.getLogger(__name__)

_BUSY_S = 0.1
_QUIET_S = 10.0


class SinkSender:
    """See the module."""

    def __init__(
        self,
        buffer: RequestBuffer,
        sink: Sink,
        options: ProducerOptions,
    ) -> None:
        retry, name = options.retry, options.name
        self._buffer = buffer
        self._sink = sink
        self._retry = retry
        self._backoff = Backoff(retry.backoff)
        self._sink_timeout_s = options.sink_timeout_s
        self._name = name
        self._said: str | None = None
        self._quiet_until_s: dict[str, float] = {}
        self._rest_until_s = 0.0
        self._is_busy = False
        self._held: dict[Hashable, deque[BufferedRequest]] = {}
        self._held_items = 0
        self._max_held = options.max_items // 2
        self._kept: set[BufferedRequest] = set()  # which the sink has, and has not confirmed
        self._batch_items, self._batch_bytes = options.batch_items, options.batch_bytes
        self._has_keys = options.key is not None
        self._takes_some = True  # whether the last attempt confirmed anything
        self._is_retry = self._is_turn_of_fresh = False
        self.batches = 0
        self.retries = 0
        self.last_error: BaseException | None = None
        self.service = Service(f"leaderq-{name}-sender", self._run)

    def _run(self, service: Service) -> None:
        while not self._buffer.is_stopped:
            batch = self._next_batch()
            if batch:
                self.batches += 1
            while batch and not self._buffer.is_stopped:
                batch = self._tried(batch)

    def _next_batch(self) -> list[BufferedRequest]:
        """Return the requests whose turn it is; none may be behind one that is held back."""
        self._is_retry = False
        self._forget_empty_lines()
        if not self._held:
            return self._buffer.take_batch()
        if self._takes_some and now_s() < self._rest_until_s:
            return self._fresh(self._rest_until_s)
        self.service.pause(self._rest_until_s - now_s())
        # Which of the two is at fault, the sink or a key? Both get their turns.
        self._is_turn_of_fresh = not self._takes_some and not self._is_turn_of_fresh
        if self._is_turn_of_fresh and (fresh := self._fresh(0.0)):
            return fresh
        self._is_retry = True
        return self._taken_back()

    def _fresh(self, until_s: float) -> list[BufferedRequest]:
        """Return requests of keys that are not held back, if any come until then."""
        if self._held_items >= self._max_held:
            self.service.pause(until_s - now_s())
            return []
        fresh = []
        for one in self._buffer.take_batch(until_s):
            if one.key in self._held:
                self._hold_back(one)
            else:
                fresh.append(one)
        return fresh

    def _hold_back(self, one: BufferedRequest) -> None:
        self._held.setdefault(one.key, deque()).append(one)
        self._held_items += 1

    def _taken_back(self) -> list[BufferedRequest]:
        """Return a batch of those held back, the first of each key first."""
        batch: list[BufferedRequest] = []
        lines = list(self._held.items())
        share, size = max(1, self._batch_items // len(lines)), 0
        for key, line in lines[: self._batch_items]:
            for _ in range(min(share, len(line))):
                if batch and size + line[0].size > self._batch_bytes:
                    break
                size += line[0].size
                batch.append(line.popleft())
            # Behind the others at the next turn.
            del self._held[key]
            self._held[key] = line
        self._held_items -= len(batch)
        return batch

    def _tried(self, batch: list[BufferedRequest]) -> list[BufferedRequest]:
        """Give the batch once; return those that are still to be sent."""
        if not self._is_busy:
            if not self._held:  # else it was waited for, or is not of this batch
                self.service.pause(self._rest_until_s - now_s())
            batch = self._unexpired(batch)
            if not batch or self._buffer.is_stopped:
                return []
        try:
            answer = self._sink.send([one.output for one in batch], self._sink_timeout_s)
            outcome = checked(answer, len(batch))
        except SinkBusy as exc:
            self._is_busy = True
            self._note(exc)
            return batch
        except SinkAway as exc:
            outcome = BatchOutcome(again=range(len(batch)), error=exc)
        except BaseException as exc:  # noqa: BLE001 - a sink that does not know its own errors; also SystemExit: this must go on
            broken = exc if isinstance(exc, SinkBroken) else _unknown(exc)
            outcome = BatchOutcome(again=range(len(batch)), error=broken)
        self._is_busy = False
        return self._heard(batch, outcome)

    def _heard(self, batch: list[BufferedRequest], outcome: BatchOutcome) -> list[BufferedRequest]:
        if outcome is ALL_CONFIRMED:
            self._well()
            self._buffer.settle(batch)
            return []
        again, refused = set(outcome.again), outcome.refused
        gone: list[Gone] = [(batch[at], LossReason.REFUSED, error) for at, error in refused.items()]
        left = [batch[at] for at in sorted(again)]
        taken = [at for at in range(len(batch)) if at not in again and at not in refused]
        self._ask_places(batch, taken, outcome)
        self._buffer.settle((batch[at] for at in taken), gone)
        self._kept.difference_update(batch)
        if outcome.error is None:
            self._well()
            return left
        if not self._is_retry:  # what is held back may be all that is stuck
            self._takes_some = bool(taken)
        self._ill(outcome.error)
        if isinstance(outcome.error, SinkBusy):
            self._kept.update(left)
        else:
            left = self._persevering(left, outcome.error)
        if not self._has_keys:
            return left
        self._put_back(left)
        return []

    def _ask_places(
        self, batch: list[BufferedRequest], taken: list[int], outcome: BatchOutcome
    ) -> None:
        """Note where the sink has stored what somebody waits for."""
        if outcome.place_of is None:
            return
        for at in taken:
            if batch[at].waiter is not None:
                try:
                    batch[at].stored_at = outcome.place_of(at)
                except Exception:
                    log.exception("sink cannot tell a place producer=%s", self._name)
                    return

    def _put_back(self, left: list[BufferedRequest]) -> None:
        for one in reversed(left):
            self._held.setdefault(one.key, deque()).appendleft(one)
        self._held_items += len(left)
        self._forget_empty_lines()

    def _forget_empty_lines(self) -> None:
        for key in [key for key, line in self._held.items() if not line]:
            del self._held[key]

    def _persevering(
        self, left: list[BufferedRequest], error: BaseException
    ) -> list[BufferedRequest]:
        most = self._retry.max_attempts
        if most is None:
            return left
        for one in left:
            one.attempts += 1
        gone: list[Gone] = [
            (one, LossReason.ATTEMPTS, error) for one in left if one.attempts >= most
        ]
        self._buffer.settle((), gone)
        return [one for one in left if one.attempts < most]

    def _unexpired(self, batch: list[BufferedRequest]) -> list[BufferedRequest]:
        now = now_s()
        expired = {one for one in batch if one.is_expired(now) and one not in self._kept}
        if not expired:
            return batch
        self._buffer.settle(
            (), [(one, LossReason.EXPIRED, None) for one in batch if one in expired]
        )
        return [one for one in batch if one not in expired]

    def _well(self) -> None:
        if self._said is not None:
            log.info("sink takes records again producer=%s", self._name)
        self._takes_some = True
        self._forget_empty_lines()
        if self._held and not self._is_retry:
            return  # it takes others
        self._said = self.last_error = None
        self._rest_until_s = 0.0
        self._backoff.reset()

    def _ill(self, error: BaseException) -> None:
        self.retries += 1
        if isinstance(error, SinkBusy):  # it goes on by itself: asking again sends nothing
            pause_s = min(_BUSY_S, self._retry.max_s)
        elif isinstance(error, SinkBroken):  # trying again soon will not help
            pause_s = self._retry.max_s
        else:
            pause_s = self._backoff.next_s()
        self._rest_until_s = now_s() + pause_s
        self._note(error)

    def _note(self, error: BaseException) -> None:
        self.last_error = error
        kind, now = type(error).__name__, now_s()
        if self._said != kind and now >= self._quiet_until_s.get(kind, 0.0):
            self._said = kind  # each attempt would say it again
            self._quiet_until_s[kind] = now + _QUIET_S
            what = "sink is behind" if isinstance(error, SinkBusy) else "sink takes nothing"
            log.warning(
                "%s, what is sent is kept producer=%s kind=%s error=%s",
                what,
                self._name,
                kind,
                error,
            )


def _unknown(error: BaseException) -> SinkBroken:
    broken = SinkBroken(f"the sink raised {type(error).__name__}: {error}")
    broken.__cause__ = error
    return broken
