"""The threads of a producer: the sender, the journal's reader, and the one that ends them.

The sender sends requests of one key in order, over retries too. What it gives the sink next depends
on what is left of what it gave before:

==================================  ================================================================
left                                given next
==================================  ================================================================
nothing                             the next batch; to a sink that can be handed it
                                    (:class:`~leaderq.producing.sinks.SinkAhead`), before the last
                                    is heard of
without a ``key``, or of a batch    exactly what is left, in order, and nothing else
that the sink is busy with
with a ``key``, after an error      those held back, or fresh ones of other keys: by turns, if
                                    neither were taken. When half of the memory's items are held
                                    back, all wait
==================================  ================================================================

On each failure:

* ``SinkAway``: the batch is given again after a pause (back-off with jitter);
* ``SinkBusy``: the sink goes on with the batch, or with the records that it names. A batch is given
  again at once. Named records are given again like records that are held back, but do not expire
  meanwhile, and no attempt is counted;
* ``SinkBroken``, an unexpected exception, and an outcome that cannot belong to its batch: the whole
  batch is given again after the longest pause; this is logged once until a batch succeeds again;
* a record is refused: its request has failed; the others go on;
* the sink never returns: the closing producer does not wait for it; a later answer is ignored.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple, NoReturn

from leaderq.base import clock
from leaderq.base.timeouts import Seldom
from leaderq.errors import (
    FromOutside,
    LeaderqError,
    ProducerClosed,
    SinkAway,
    SinkBroken,
    SinkBusy,
    told,
    with_cause,
)
from leaderq.producing.account import LossReason
from leaderq.producing.buffer import Gone, RequestBuffer
from leaderq.producing.listeners import resolve
from leaderq.producing.options import ProducerOptions
from leaderq.producing.request import BufferedRequest
from leaderq.producing.sinks import BatchOutcome, HandOver, Sink, SinkBatch, checked
from leaderq.producing.spill import Spill
from leaderq.threads import Backoff, Service, primitives
from leaderq.threads.waker import bounded_s

log = logging.getLogger(__name__)

_BUSY_S = 0.1
_UNREADABLE_S = 0.5
_STOP_S = 2.0
_TRIES = 3
_WRITE_S = 10.0
_LOOK_S = 0.02
_END_S = 90.0
"""Longer than all steps together: seconds for the threads and the sink, ten to have memory written,
half a minute each to flush and to close the journal."""


class _Sent(NamedTuple):
    """A batch that the sink was given. ``items``: how many records. ``waited``: those whose places
    somebody waits for, by position. ``answer()`` returns the outcome. ``is_ahead``: the next batch
    may be given before that.
    """

    batch: list[BufferedRequest]
    items: int
    waited: dict[int, BufferedRequest]
    answer: Callable[[], BatchOutcome]
    is_ahead: bool = False


class _Left(NamedTuple):
    """What of a batch is still to be sent, and whether that is for an error. ``is_whole``: the sink
    has confirmed all of it.

    ``is_blind``: the sink raised what it does not know, or was interrupted. Then nothing is known
    of what was handed over behind this batch either."""

    requests: list[BufferedRequest]
    is_ill: bool = False
    is_blind: bool = False
    is_whole: bool = False


class SinkSender:
    """See the module."""

    def __init__(self, buffer: RequestBuffer, sink: Sink, options: ProducerOptions) -> None:
        self._buffer, self._sink, self._options = buffer, sink, options
        self._backoff = Backoff(options.retry)
        self._said: str | None = None
        self._seldom = Seldom()
        self._rest_until_s = 0.0
        self._under_way: _Sent | None = None
        self._again: list[BufferedRequest] = []  # what is given next, and nothing else
        self._held: dict[Hashable, deque[BufferedRequest]] = {}  # held back, key by key
        self._kept: set[BufferedRequest] = set()  # which the sink has, and has not confirmed
        self._takes_some = True  # whether the last attempt confirmed anything
        self._is_retry = False  # whether those held back were given last
        self._hand_over: HandOver | None = getattr(sink, "hand_over", None)
        self.batches = 0
        self.retries = 0
        self.last_error: BaseException | None = None
        self.service = Service.lasting(
            f"leaderq-{options.name}-sender", self._send_next, on_struck=self._begin_again
        )

    def _send_next(self, _: Service) -> bool:
        is_again = bool(self._again)
        fresh = self._given(self._next_batch())
        self.batches += fresh is not None and not is_again
        sent, self._under_way = (self._under_way, fresh), None
        left, is_ill, is_blind, is_whole = list[BufferedRequest](), False, False, True
        for one in sent:
            if one is None:
                continue
            if is_blind:
                left += one.batch
            elif one is fresh and is_whole and not is_again and self._goes_ahead(one):
                self._under_way = one
            else:
                more, is_one_ill, is_blind, is_whole = self._heard(one)
                left, is_ill = left + more, is_ill or is_one_ill
        if is_ill and self._options.key is not None:
            self._hold_back(left)
        else:
            self._again = left
        return not self._buffer.is_stopped

    def _goes_ahead(self, sent: _Sent) -> bool:
        """Whether the next batch may be given before this one is heard of."""
        return sent.is_ahead and self.last_error is None and not self._held

    def _begin_again(self) -> None:
        self._again, self._held, self._kept = [], {}, set()
        self._is_retry, self._under_way = False, None
        self._buffer.begin_again()

    # -- what is given next ------------------------------------------------------------------------

    def _next_batch(self) -> list[BufferedRequest]:
        """Return the requests whose turn it is; none of them may come after a request of its key
        that is held back.
        """
        was_retry, self._is_retry = self._is_retry, False
        if not self._held:
            batch, self._again = self._again, []
            batch = batch or self._buffer.take_batch(None if self._under_way is None else 0.0)
            if batch:
                self.service.pause(self._rest_until_s - clock.now_s())
            return batch
        if self._again:
            batch, self._again = self._again, []
            return batch
        if self._takes_some and clock.now_s() < self._rest_until_s:
            return self._fresh(self._rest_until_s)
        self.service.pause(self._rest_until_s - clock.now_s())
        # Which of the two is at fault, the sink or a key? Both get their turns.
        if not self._takes_some and was_retry and (fresh := self._fresh(0.0)):
            return fresh
        self._is_retry = True
        return self._taken_back()

    def _fresh(self, until_s: float) -> list[BufferedRequest]:
        """Return requests of keys that are not held back, if any come before ``until_s``."""
        if sum(map(len, self._held.values())) >= self._options.max_items // 2:
            self.service.pause(until_s - clock.now_s())
            return []
        fresh = []
        for one in self._buffer.take_batch(until_s):
            if one.key in self._held:
                self._held[one.key].append(one)
            else:
                fresh.append(one)
        return fresh

    def _taken_back(self) -> list[BufferedRequest]:
        """Return a batch of requests that were held back, the first of each key first."""
        batch: list[BufferedRequest] = []
        lines = list(self._held.items())
        options = self._options
        share, size = max(1, options.batch_items // len(lines)), 0
        for key, line in lines[: options.batch_items]:
            for _ in range(min(share, len(line))):
                if batch and size + line[0].size > options.batch_bytes:
                    break
                size += line[0].size
                batch.append(line.popleft())
            del self._held[key]
            if line:
                self._held[key] = line  # behind the others at the next turn
        return batch

    def _hold_back(self, left: list[BufferedRequest]) -> None:
        for one in reversed(left):
            self._held.setdefault(one.key, deque()).appendleft(one)

    def _given(self, batch: list[BufferedRequest]) -> _Sent | None:
        """Give the batch, without expired requests, to the sink; ``None``: nothing was left to
        give.
        """
        batch = self._unexpired(batch)
        if not batch or self._buffer.is_stopped:
            return None
        records, waited = SinkBatch(), dict[int, BufferedRequest]()
        for one in batch:
            if one.waiter is not None:
                waited[len(records)] = one
            if one.run is None:
                records.append(one.output)
            else:
                records += one.run
        records.waited, count = waited, len(records)
        timeout_s = self._options.sink_timeout_s
        if self._hand_over is None:
            return _Sent(batch, count, waited, partial(self._sink.send, records, timeout_s))
        try:
            answer = self._hand_over(records, timeout_s)
        except BaseException as exc:  # noqa: BLE001 - raised where the outcome is asked for, at once
            return _Sent(batch, count, waited, partial(_raise, exc))
        return _Sent(batch, count, waited, answer, is_ahead=True)

    def _unexpired(self, batch: list[BufferedRequest]) -> list[BufferedRequest]:
        mortal = [one for one in batch if one.deadline is not None]
        if not mortal:
            return batch
        now = clock.now_s()
        expired = {one for one in mortal if one.is_expired(now) and one not in self._kept}
        self._buffer.settle(
            (), [(one, LossReason.EXPIRED, None) for one in mortal if one in expired]
        )
        return [one for one in batch if one not in expired]

    # -- what became of it -------------------------------------------------------------------------

    def _heard(self, sent: _Sent) -> _Left:
        """Settle a batch when its outcome is there; return what is left of it."""
        batch = sent.batch
        try:
            outcome, is_blind = self._outcome(sent)
        except SinkBusy as exc:
            self._kept.update(batch)
            self._note(exc)
            self.service.pause(min(_BUSY_S, self._options.retry.most_s))
            return _Left(batch)
        again, refused, error = set(outcome.again), outcome.refused, outcome.error
        self._kept.difference_update(batch)
        taken, left = batch, list[BufferedRequest]()
        if len(again) == sent.items:
            taken, left = [], batch
        elif again or refused:
            batch = self._buffer.parted(batch)
            taken = [one for at, one in enumerate(batch) if at not in again and at not in refused]
            left = [batch[at] for at in sorted(again)]
        if outcome.place_of is not None:
            self._note_places(sent, {*again, *refused}, outcome.place_of)
        if error is None:
            self._well()
        self._buffer.settle(taken, [(batch[at], LossReason.REFUSED, refused[at]) for at in refused])
        if error is None:
            return _Left(left, is_whole=not left and not refused)
        if not self._is_retry:  # perhaps only those held back fail
            self._takes_some = bool(taken)
        self._ill(error)
        if not isinstance(error, SinkBusy):
            return _Left(self._persevering(left, error), True, is_blind)
        self._kept.update(left)
        return _Left(left, True)

    def _persevering(
        self, left: list[BufferedRequest], error: BaseException
    ) -> list[BufferedRequest]:
        most = self._options.retry.attempts
        if most is None:
            return left
        left = self._buffer.parted(left)
        for one in left:
            one.attempts += 1
        gone: list[Gone] = [
            (one, LossReason.ATTEMPTS, error) for one in left if one.attempts >= most
        ]
        self._buffer.settle((), gone)
        return [one for one in left if one.attempts < most]

    def _outcome(self, sent: _Sent) -> tuple[BatchOutcome, bool]:
        """The outcome of a batch, and whether the sink has failed to tell it."""
        count, is_blind = sent.items, False
        try:
            outcome = checked(sent.answer(), count)
            if outcome.error is None and len(outcome.again) == count:
                outcome = outcome._replace(error=SinkAway("the sink took none, and gave no reason"))
            return outcome, False
        except SinkBusy:
            raise
        except (SinkAway, SinkBroken) as exc:
            error: BaseException = exc
        except BaseException as exc:  # noqa: BLE001 - a sink that does not know its own errors; also SystemExit: this must go on
            error, is_blind = with_cause(SinkBroken(f"the sink raised {told(exc)}"), exc), True
        return BatchOutcome(again=range(count), error=error), is_blind

    def _note_places(
        self, sent: _Sent, left_out: set[int], place_of: Callable[[int], object]
    ) -> None:
        for at, one in sent.waited.items():
            try:
                one.stored_at = None if at in left_out else place_of(at)
            except BaseException:  # what is confirmed is not sent again
                log.exception("sink cannot tell a place producer=%s", self._options.name)

    def _well(self) -> None:
        if self._said is not None:
            log.info("sink takes records again producer=%s", self._options.name)
        self._takes_some = True
        if self._held and not self._is_retry:
            return  # it takes others
        self._said = self.last_error = None
        self._rest_until_s = 0.0
        self._backoff.reset()

    def _ill(self, error: BaseException) -> None:
        self.retries += 1
        if isinstance(error, SinkBusy):  # it goes on by itself: asking again sends nothing
            pause_s = min(_BUSY_S, self._options.retry.most_s)
        elif isinstance(error, SinkBroken):  # trying again soon will not help
            pause_s = self._options.retry.most_s
        else:
            pause_s = self._backoff.next_s()
        self._rest_until_s = clock.now_s() + pause_s
        self._note(error)

    def _note(self, error: BaseException) -> None:
        self.last_error = error
        kind = type(error).__name__
        if self._said != kind and self._seldom.is_time(kind):
            self._said = kind  # each attempt would say it again
            what = "sink is behind" if isinstance(error, SinkBusy) else "sink takes nothing"
            log.warning(
                "%s, requests are kept producer=%s kind=%s error=%s",
                what,
                self._options.name,
                kind,
                told(error),
            )


def _raise(error: BaseException) -> NoReturn:
    raise error


def journal_reader(buffer: RequestBuffer, spill: Spill, name: str) -> Service:
    """Return the service that reads the journal into memory, in order, while the state allows it;
    after an error it tries again twice a second.
    """

    def read_next(service: Service) -> bool:
        try:
            order = buffer.next_order()
            if order is not None:
                buffer.fill(spill.read(*order))
        except (LeaderqError, OSError) as exc:
            log.error("journal cannot be read now error=%s", exc)  # noqa: TRY400 - said again each time
            spill.last_error = exc
            service.pause(_UNREADABLE_S)
        return not buffer.is_stopped

    # Struck, it reads on from its position.
    return Service.lasting(f"leaderq-{name}-journal-reader", read_next, on_struck=lambda: None)


class Shutdown:
    """Ends a producer on a thread of its own, so that Ctrl-C in the main thread ends the wait and
    never the shutdown. The first caller of ``close`` starts the shutdown and waits for it; other
    callers wait for the same one.

    Every step has a time limit, and is done whatever became of the step before. If the sink or its
    ``close`` hangs, it is left behind; pending requests go into the journal, or are lost and
    reported.
    """

    def __init__(
        self, buffer: RequestBuffer, sink: Sink, services: Sequence[Service], name: str
    ) -> None:
        self._buffer, self._spill, self._sink, self._name = buffer, buffer.spill, sink, name
        self._services = services
        self._timeout_s: float | None = None
        self._service = Service(f"leaderq-{name}-shutdown", lambda _: self._run())
        self._closing = Service(f"leaderq-{name}-sink-closing", lambda _: self._close_sink())
        self._over, self._running = primitives.Event(), primitives.Lock()
        self._steps: deque[Callable[[], object]] = deque(
            (
                lambda: buffer.wait_settled(self._timeout_s),
                self._stop_services,
                self._end_sink,
                self._write_down,
                self._close_journal,
                self._tell_waiters,
            )
        )

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def begin(self, timeout_s: float | None) -> None:
        """Start the shutdown unless it runs: wait ``timeout_s`` seconds for pending requests, then
        close.
        """
        self._timeout_s = timeout_s
        if not self._service.is_running:  # also if a start was interrupted
            self._service = Service(f"leaderq-{self._name}-shutdown", lambda _: self._run())
        try:
            self._service.start()
        except RuntimeError:  # some Pythons start no thread at the end of a program
            self._run()

    def wait(self, timeout_s: float | None) -> None:
        """Wait until the shutdown is over, but no longer than ``timeout_s`` and all its steps may
        take. Return at once on a thread that the shutdown needs, such as one that calls a listener.
        """
        if self.is_own_thread:
            return
        if not self._over.wait(None if timeout_s is None else bounded_s(timeout_s + _END_S)):
            log.error("closing continues in the background producer=%s", self._name)

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is a thread of the producer, or the journal's writer, which calls the
        producer back."""
        own = (*self._services, self._service, self._closing)
        is_writer = self._spill is not None and self._spill.journal.is_writer
        return is_writer or any(service.is_current for service in own)

    def _run(self) -> None:
        with self._running:
            while self._steps and not self.is_over:
                for _ in range(_TRIES):
                    try:
                        self._steps[0]()
                        break
                    except FromOutside:
                        raise
                    except BaseException:
                        log.exception("a step of closing failed producer=%s", self._name)
                self._steps.popleft()
            self._over.set()

    def _stop_services(self) -> None:
        self._buffer.close_entry(is_end=True)
        deadline = clock.now_s() + _STOP_S
        for service in self._services:
            service.is_stopping = True
            service.wake()
        for service in self._services:
            if service.is_current:
                continue
            if not service.stop(deadline - clock.now_s()):
                log.warning("thread left behind producer=%s thread=%s", self._name, service.name)

    def _end_sink(self) -> None:
        try:
            self._closing.start()
        except RuntimeError:  # see begin
            self._close_sink()
        if not self._closing.stop(2 * _STOP_S):
            log.warning("closing the sink hangs, left behind producer=%s", self._name)

    def _close_sink(self) -> None:
        try:
            self._sink.close(_STOP_S)
        except Exception:
            log.exception("closing the sink failed producer=%s", self._name)

    def _write_down(self) -> None:
        give_up_s = clock.now_s() + _WRITE_S
        while not self._buffer.write_down() and clock.now_s() < give_up_s:
            clock.sleep(_LOOK_S)

    def _close_journal(self) -> None:
        if self._spill is not None:
            self._spill.flush()
        self._buffer.give_up_unwritten()
        if self._spill is not None:
            self._spill.close()

    def _tell_waiters(self) -> None:
        """The journal is closed: tell all who wait that no more news will come."""
        buffer, spill = self._buffer, self._spill
        for number, waiter in buffer.end():
            where = "the journal" if spill is None else f"journal {str(spill.journal.directory)!r}"
            text = f"closed before it was confirmed; the request is record {number} of {where}"
            resolve(waiter, error=ProducerClosed(f"{text}, and is sent from there", number))
        buffer.loss_log.write_all()
        settlement = buffer.settlement()
        if settlement.journaled or not settlement:
            log.warning("producer closed producer=%s outcome=%s", self._name, settlement)
