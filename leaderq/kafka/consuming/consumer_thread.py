"""The consumer thread: owns the consumer, and hands its batches to the career thread.

The career thread, in which the runner may raise an exception at any instruction (``atomic``
careers), never enters the client library, and never holds a lock that the consumer thread needs.
They exchange requests through ``SimpleQueue``, whose ``put`` and ``get`` are single C calls; each
carries its own queue for the answer, so that what is left of an exchange broken off is not taken
for a later one. A batch whose hand-over was broken off is handed out again.

The consumer thread is the authority on the consumer. Between terms it keeps one open and warm,
never joined; within a term it runs a :class:`~leaderq.kafka.consuming.term_consumer.TermConsumer`.

The gate: :meth:`ConsumerThread.finish` shuts it at once, in the career's thread, whatever the
consumer thread is doing, and a term that is over shuts it by itself. Behind it no request to join
the group is sent, so a deposed leader's consumer cannot fence its successor (B8).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

from leaderq.base import clock
from leaderq.errors import KafkaError, LeaderqError, ServersUnreachable, told
from leaderq.kafka.clients.consumer import ConsumerClient, KafkaAway, Offsets
from leaderq.kafka.consuming.term_consumer import ConsumingPlan, JoinGate, TermConsumer
from leaderq.kafka.record import Batch, Partition
from leaderq.term import Term
from leaderq.threads import primitives
from leaderq.threads.stacks import stack_of

log = logging.getLogger(__name__)

KEEP_WARM_S = 15.0
HUNG_S = 60.0
_SLICE_S = 0.005  # how late the end of a term may be noticed by a career that waits for records
_LAST_COMMIT_S = 5.0
_REFRESH_S = 2.0
Ask = Callable[[TermConsumer], Any]


@dataclass(frozen=True, eq=False)
class _Request:
    """A request of the career, for the term of ``gate``. ``ask`` is called between rounds of the
    term's consumer, until it raises or returns something other than ``None``. Then a pair is put
    into ``answer``: what ``ask`` returned, and what it raised. A request without a gate ends the
    thread; one whose gate is shut, or new, ends the term before it. The career has one request at a
    time, so a newer one replaces this one, which then has no answer.
    """

    gate: JoinGate | None
    ask: Ask = lambda _: True
    answer: primitives.SimpleQueue[tuple[Any, BaseException | None]] = field(
        default_factory=lambda: primitives.SimpleQueue()
    )


class ConsumerThread:
    """Reads and commits for one career, through all its terms. The career thread calls its public
    methods.
    """

    def __init__(self, plan: ConsumingPlan) -> None:
        self._plan = plan
        self._requests: primitives.SimpleQueue[_Request] = primitives.SimpleQueue()
        self._gate: JoinGate | None = None
        self._opening: primitives.SimpleQueue[BaseException | None] = primitives.SimpleQueue()
        self._newest: _Request | None = None
        self._question: _Request | None = None  # for records; its answer has not been taken
        self._beat = clock.now_s()
        self._term_consumer: TermConsumer | None = None
        self._next_batch: Batch | None = None
        self._is_behind = False  # a commit for which nobody has waited may be under way
        name = f"leaderq-consumer-{plan.career}"
        self._thread = primitives.Thread(target=self._run, name=name, daemon=True)

    @property
    def loaded(self) -> Offsets:
        """The offsets that the store is known to hold."""
        return {} if self._term_consumer is None else dict(self._term_consumer.positions.committed)

    @property
    def is_fit(self) -> bool:
        """Whether the consumer thread lives and does not hang in the client library."""
        return self._thread.is_alive() and clock.now_s() - self._beat < HUNG_S

    def start(self, timeout_s: float) -> None:
        self._thread.start()
        try:
            error = self._opening.get(timeout=timeout_s)
        except primitives.Empty:
            raise ServersUnreachable("Kafka", self._plan.address, waited_s=timeout_s) from None
        if error is not None:
            raise error

    def begin(self, term: Term, wait_s: float) -> None:
        """Take over for ``term``; wait up to ``wait_s`` until the former leader is fenced."""
        self._gate = JoinGate(term)
        self._question = self._next_batch = None
        self._is_behind = False
        request = self._asked(lambda consumer: consumer.joined or None)
        self._await(request, wait_s, term.ending.is_set)

    def is_consuming(self, term: Term) -> bool:
        return self._gate is not None and self._gate.term is term

    def next(self, term: Term, wait_s: float) -> Batch | None:
        """Return the next batch; ``None``: none came within ``wait_s``, or the term is ending."""
        return self._handed(TermConsumer.offer, wait_s, term.ending.is_set)

    def more(self, wait_s: float, is_enough: Callable[[], bool]) -> Batch | None:
        """Return more records beside those in hand; from then on all of them are one batch.
        ``None`` if there were none, or no room for them, until ``wait_s`` had passed or
        ``is_enough()``.
        """
        return self._handed(TermConsumer.offer_beside, wait_s, is_enough)

    def _handed(self, ask: Ask, wait_s: float, stop: Callable[[], bool]) -> Batch | None:
        batch, self._next_batch = self._next_batch, None
        question, is_stale = self._question, self.is_lost()  # abandoned before it was taken
        if batch is not None and not is_stale:
            return batch
        if is_stale or (question is not None and question.ask != ask):
            question = None
        if question is None or (question is not self._newest and question.answer.empty()):
            question = self._question = self._asked(ask)
        answer = self._await(question, wait_s, stop)
        if answer is not None:
            self._question = None
        return cast("Batch | None", answer)

    def is_lost(self) -> bool:
        """Whether what was handed out last was abandoned: others may handle it, or an operator has
        set the offsets past it.
        """
        consumer = self._term_consumer
        return consumer is not None and consumer.positions.is_lost

    def commit(self, term: Term, ends: Offsets, *, is_behind: bool = False) -> None:
        """Commit these ends of the batch in hand, and wait until they are stored. Raises
        ``BatchLost`` if the batch was abandoned (records that the store does not count as done are
        handed out again), ``EffectRefused`` if an effect that goes with the ends cannot be stored,
        ``Deposed`` if there is a newer leader.

        ``is_behind``, for the last ends of a batch: return as soon as the commit before this one is
        over, and this one is over or the next batch has been read. If the batch is abandoned later,
        the next one is abandoned too, and its commit raises ``BatchLost``.
        """
        request = self._asked(_committing(ends, is_behind=is_behind))
        self._next_batch = self._committed(term, request) or None
        self._is_behind = is_behind

    def _committed(self, term: Term, request: _Request) -> Any:
        last_s: float | None = None
        while (answer := self._await(request, 0.1, lambda: False)) is None:
            term.check()
            if term.ending.is_set():
                last_s = last_s or clock.now_s() + _LAST_COMMIT_S
                if clock.now_s() > last_s:
                    what = "the last batch was not committed in time; the next leader repeats it"
                    raise KafkaError(what)
        return answer

    def _settle(self, term: Term) -> None:
        """Wait until the last commit is over, if nobody has waited for it yet."""
        if self._is_behind:
            self._is_behind = False
            self._committed(term, self._asked(_settled))

    def rest(self, partition: Partition, for_s: float) -> bool:
        """Hand out no more records of ``partition`` for ``for_s`` seconds; after that hand them out
        again from the committed offset. Its records in hand must not be committed any more.
        ``False``: nothing was done, because there is no other partition.
        """
        assert self._gate is not None
        self._settle(self._gate.term)
        request = self._asked(lambda consumer: consumer.rest(partition, for_s))
        return bool(self._committed(self._gate.term, request))

    def finish(self, term: Term) -> None:
        """End the work of ``term``: from now on nothing joins, reads or commits for it."""
        if self._gate is not None and self._gate.term is term:
            try:
                self._settle(term)
            except LeaderqError as exc:
                log.warning("last batch not known to be committed error=%s", told(exc))
            self._gate.is_shut = True
            self._asked()
            self._gate = self._question = self._next_batch = None

    def close(self, timeout_s: float = 5.0) -> None:
        if self._gate is not None:
            self._gate.is_shut = True
        self._requests.put(_Request(None))
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._plan.reports.close()

    def _asked(self, ask: Ask = lambda _: True) -> _Request:
        assert self._gate is not None
        request = self._newest = _Request(self._gate, ask)
        self._requests.put(request)
        return request

    def _await(self, request: _Request, wait_s: float, stop: Callable[[], bool]) -> Any:
        end = clock.now_s() + wait_s
        while True:
            try:
                value, error = request.answer.get(timeout=_SLICE_S)
            except primitives.Empty:
                if not self.is_fit:
                    places = stack_of(self._thread.ident)
                    state = f"hangs in {places}" if places else "has died"
                    what = f"the consumer thread {state}; the next term gets a new one"
                    raise KafkaError(what) from None
                if stop() or clock.now_s() >= end:
                    return None
                continue
            if error is not None:
                self._question = None
                raise error
            return value

    # ---- the consumer thread ---------------------------------------------------------------------

    def _run(self) -> None:
        consumer: ConsumerClient | None
        try:
            consumer = self._plan.opened()
        except BaseException as exc:  # noqa: BLE001  (handed to the thread that waits for it)
            self._opening.put(exc)
            return
        self._opening.put(None)
        request: _Request | None = None
        while True:
            if request is None and (request := self._next_request(KEEP_WARM_S)) is None:
                consumer = self._kept_warm(consumer)
            elif (gate := request.gate) is None:
                break
            elif gate.is_shut:
                request = None
            else:
                request = self._drained(request, gate, consumer)
                consumer = self._warm() if request.gate is not None else None
        if consumer is not None:
            consumer.close()

    def _drained(
        self, request: _Request | None, gate: JoinGate, consumer: ConsumerClient | None
    ) -> _Request:
        """Read and commit for the term of ``gate``, and answer the career between the rounds, until
        a request does not belong to the term. Returns that one.
        """
        term_consumer = self._term_consumer = TermConsumer(self._plan, gate, consumer)
        end: LeaderqError | None = None
        try:
            while True:
                is_asked = request is not None
                wait_s = KEEP_WARM_S if end else term_consumer.wait_s(is_asked=is_asked)
                if (new := self._next_request(wait_s)) is not None:
                    if new.gate is not gate or gate.is_shut:
                        return new
                    request = None if _is_answered(new, term_consumer, end) else new
                if end is None:
                    try:
                        term_consumer.round()
                    except LeaderqError as exc:
                        end = exc
                        term_consumer.close()
                if request is not None and _is_answered(request, term_consumer, end):
                    request = None
        finally:
            term_consumer.close()

    def _next_request(self, wait_s: float) -> _Request | None:
        self._beat = clock.now_s()
        try:
            return self._requests.get(wait_s > 0, wait_s)
        except primitives.Empty:
            return None
        finally:
            self._beat = clock.now_s()

    def _warm(self) -> ConsumerClient | None:
        """Return a new consumer that has not joined; ``None`` if Kafka is unreachable, then the
        next term opens one.
        """
        try:
            return self._plan.opened()
        except LeaderqError as exc:
            log.warning("no warm consumer now error=%s", exc)
            return None

    def _kept_warm(self, consumer: ConsumerClient | None) -> ConsumerClient | None:
        if consumer is None:
            return self._warm()
        try:
            consumer.refresh(_REFRESH_S)
        except KafkaAway:
            log.debug("Kafka is unreachable, the client keeps trying to connect", exc_info=True)
        except Exception:
            log.warning("warm consumer failed, replacing it", exc_info=True)
            consumer.close()
            return self._warm()
        return consumer


def _is_answered(request: _Request, consumer: TermConsumer, error: BaseException | None) -> bool:
    """Ask, and answer if that has a result, or with ``error``: why the term is over."""
    value = None
    if error is None:
        try:
            value = request.ask(consumer)
        except LeaderqError as exc:
            error = exc
    if value is None and error is None:
        return False
    request.answer.put((value, error))
    return True


def _settled(consumer: TermConsumer) -> bool | None:
    if consumer.commits.wanted is not None:
        return None
    if consumer.commits.failure is not None:
        raise consumer.commits.failure
    return True


def _committing(ends: Offsets, *, is_behind: bool) -> Ask:
    has_begun = False

    def ask(consumer: TermConsumer) -> Batch | bool | None:
        nonlocal has_begun
        if has_begun and _settled(consumer):
            # The next one goes along, which spares two changes of thread; else it stays in hand.
            return (not consumer.positions.parts and consumer.offer()) or False
        if not has_begun and consumer.commits.wanted is None:
            has_begun = True
            consumer.request_commit(ends)
        return consumer.offer_behind() if has_begun and is_behind else None

    return ask
