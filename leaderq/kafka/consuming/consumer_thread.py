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
from enum import Enum
from typing import Any, cast

from leaderq.base import clock
from leaderq.errors import Deposed, KafkaError, LeaderqError, ServersUnreachable, told
from leaderq.kafka.clients.consumer import ConsumerClient, KafkaAway, Offsets
from leaderq.kafka.consuming.commits import abandoned
from leaderq.kafka.consuming.term_consumer import ConsumingPlan, JoinGate, TermConsumer
from leaderq.kafka.record import Batch, Partition
from leaderq.term import Reason, Term
from leaderq.threads import primitives
from leaderq.threads.stacks import stack_of

log = logging.getLogger(__name__)

KEEP_WARM_S = 15.0
HUNG_S = 60.0
_SLICE_S = 0.005  # how late the end of a term may be noticed by a career that waits for records
_LAST_COMMIT_S = 5.0
_REFRESH_S = 2.0
_BREAKS = 3


class _Kind(Enum):
    BEGIN = "begin"
    NEXT = "next"
    COMMIT = "commit"
    REST = "rest"
    FINISH = "finish"
    CLOSE = "close"


_PENDING = object()
Ask = Callable[[TermConsumer], Any]


@dataclass(frozen=True, eq=False)
class _Request:
    """A request of the career. ``ask`` is called between rounds of the term's consumer, until it
    raises or returns something other than ``_PENDING``. Then a pair is put into ``answer``: what
    ``ask`` returned, and what it raised. A newer request of the same kind replaces this one.
    """

    kind: _Kind
    ask: Ask = lambda _: None
    what: Any = None
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
        self._question: _Request | None = None
        self._beat = clock.now_s()
        self.loaded: Offsets = {}
        self._losses = 0  # of the term's consumer, when it handed out what is in hand
        self._next_batch: Batch | None = None
        self._is_behind = False  # a commit for which nobody has waited may be under way
        name = f"leaderq-consumer-{plan.career}"
        self._thread = primitives.Thread(target=self._run, name=name, daemon=True)

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

    def begin(self, term: Term, wait_s: float) -> bool:
        """Take over for ``term``; return whether the former leader was fenced within ``wait_s``."""
        self._gate = gate = JoinGate(term)
        self.loaded, self._next_batch, self._is_behind = {}, None, False
        request = self._asked(_Kind.BEGIN, self._joined, gate)
        return self._await(request, wait_s, term.ending.is_set) is not _PENDING

    def _joined(self, consumer: TermConsumer) -> Any:
        self.loaded = consumer.loaded
        return True if consumer.joined else _PENDING

    def is_consuming(self, term: Term) -> bool:
        return self._gate is not None and self._gate.term is term

    def next(self, term: Term, wait_s: float) -> Batch | None:
        """Return the next batch; ``None``: none came within ``wait_s``, or the term is ending."""
        return self._handed(self._offered, term, wait_s, term.ending.is_set)

    def more(self, term: Term, wait_s: float, is_enough: Callable[[], bool]) -> Batch | None:
        """Return more records beside those in hand; from then on all of them are one batch.
        ``None`` if there were none, or no room for them, until ``wait_s`` had passed or
        ``is_enough()``.
        """
        return self._handed(self._offered_beside, term, wait_s, is_enough)

    def _handed(
        self, ask: Ask, term: Term, wait_s: float, stop: Callable[[], bool]
    ) -> Batch | None:
        batch, self._next_batch = self._next_batch, None
        if batch is not None:
            return batch
        question = self._question
        if question is None or question.what is not term or question.ask != ask:
            question = self._question = self._asked(_Kind.NEXT, ask, term)
        answer = self._await(question, wait_s, stop)
        if answer is _PENDING:
            return None
        self._question = None
        return cast("Batch", answer)

    def _offered(self, consumer: TermConsumer) -> Any:
        batch = consumer.offer()
        if batch is not None:
            self._losses = consumer.losses
        return batch or _PENDING

    def _offered_beside(self, consumer: TermConsumer) -> Any:
        if consumer.losses != self._losses:
            raise abandoned()
        return consumer.offer_beside() or _PENDING

    def commit(self, term: Term, ends: Offsets, *, is_behind: bool = False) -> None:
        """Commit these ends of the batch in hand, and wait until they are stored. Raises
        ``BatchLost`` if the batch was abandoned (records that the store does not count as done are
        handed out again), ``EffectRefused`` if an effect that goes with the ends cannot be stored,
        ``Deposed`` if there is a newer leader.

        ``is_behind``, for the last ends of a batch: return as soon as the commit before this one is
        over, and this one is over or the next batch has been read. If the batch is abandoned later,
        the next one is abandoned too, and its commit raises ``BatchLost``.
        """
        request = self._asked(_Kind.COMMIT, self._committing(ends, is_behind=is_behind))
        self._next_batch = self._committed(term, request)
        self._is_behind = is_behind

    def _committing(self, ends: Offsets, *, is_behind: bool) -> Ask:
        has_begun = False

        def ask(consumer: TermConsumer) -> Any:
            nonlocal has_begun
            commits = consumer.commits
            if has_begun and commits.wanted is None:
                self.loaded = consumer.loaded
                if commits.failure is not None:
                    raise commits.failure
                # The next one goes along, which spares two changes of thread; else it stays in hand
                batch = _PENDING if consumer.has_in_hand else self._offered(consumer)
                return None if batch is _PENDING else batch
            if not has_begun and commits.wanted is None:
                has_begun = True
                is_ours = consumer.has_in_hand and consumer.losses == self._losses
                commits.request(ends, in_hand=is_ours)
            if has_begun and is_behind and commits.wanted is not None:
                return consumer.offer_behind() or _PENDING
            return _PENDING

        return ask

    def _committed(self, term: Term, request: _Request) -> Any:
        last_s: float | None = None
        while (answer := self._await(request, 0.1, lambda: False)) is _PENDING:
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
            self._committed(term, self._asked(_Kind.COMMIT, _settled))

    def rest(self, partition: Partition, for_s: float, note: object) -> bool:
        """Hand out no more records of ``partition`` for ``for_s`` seconds; after that hand them out
        again from the committed offset, with ``note``. Its records in hand must not be committed
        any more. ``False``: nothing was done, because there is no other partition.
        """
        if len(self.loaded) < 2:
            return False
        if self._gate is not None:
            self._settle(self._gate.term)
        self._asked(_Kind.REST, lambda consumer: consumer.rest(partition, for_s, note))
        return True

    def finish(self, term: Term) -> None:
        """End the work of ``term``: from now on nothing joins, reads or commits for it."""
        if self._gate is not None and self._gate.term is term:
            try:
                self._settle(term)
            except LeaderqError as exc:
                log.warning("last batch not known to be committed error=%s", told(exc))
            self._gate.is_shut = True
            self._asked(_Kind.FINISH)
            self._gate = self._question = self._next_batch = None

    def close(self, timeout_s: float = 5.0) -> None:
        if self._gate is not None:
            self._gate.is_shut = True
        self._asked(_Kind.CLOSE)
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        self._plan.reports.close()

    def _asked(self, kind: _Kind, ask: Ask = lambda _: None, what: Any = None) -> _Request:
        request = _Request(kind, ask, what)
        self._requests.put(request)
        return request

    def _await(self, request: _Request, wait_s: float, stop: Callable[[], bool]) -> Any:
        end = clock.now_s() + wait_s
        while True:
            try:
                value, error = request.answer.get(timeout=_SLICE_S)
            except primitives.Empty:
                if not self.is_fit:
                    what = f"the consumer thread {self._state()}; the next term gets a new one"
                    raise KafkaError(what) from None
                if stop() or clock.now_s() >= end:
                    return _PENDING
                continue
            if error is not None:
                self._question = None
                raise error
            return value

    def _state(self) -> str:
        places = stack_of(self._thread.ident)
        return f"hangs in {places}" if places else "has died"

    # ---- the consumer thread ---------------------------------------------------------------------

    def _run(self) -> None:
        consumer: ConsumerClient | None
        try:
            consumer = self._opened()
        except BaseException as exc:  # noqa: BLE001  (handed to the thread that waits for it)
            self._opening.put(exc)
            return
        self._opening.put(None)
        while True:
            request = self._next_request(KEEP_WARM_S)
            if request is None:
                consumer = self._kept_warm(consumer)
            elif request.kind is _Kind.CLOSE:
                break
            elif request.kind is _Kind.BEGIN:
                term_consumer = TermConsumer(self._plan, request.what, consumer)
                try:
                    if _TermLoop(self, term_consumer, request).run():
                        return
                finally:
                    term_consumer.close()
                consumer = self._warm()
            elif request.kind not in (_Kind.FINISH, _Kind.REST):
                request.answer.put((None, KafkaError("no term is being drained")))
        if consumer is not None:
            consumer.close()

    def _opened(self) -> ConsumerClient:
        consumer = self._plan.make()
        consumer.open()
        return consumer

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
            return self._opened()
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


def _settled(consumer: TermConsumer) -> Any:
    if consumer.commits.wanted is not None:
        return _PENDING
    if consumer.commits.failure is not None:
        raise consumer.commits.failure
    return None


class _TermLoop:
    """The loop of one term: runs the consumer's rounds, and answers the career between them."""

    def __init__(self, owner: ConsumerThread, term_consumer: TermConsumer, begun: _Request) -> None:
        self._owner = owner
        self._term_consumer = term_consumer
        self._term: Term = begun.what.term
        self._open = {_Kind.BEGIN: begun}
        self._end: BaseException | None = None
        self._breaks = 0

    def run(self) -> bool:
        """Run until the career finishes the term; returns whether the thread must end too."""
        while True:
            is_asked = _Kind.NEXT in self._open
            wait_s = KEEP_WARM_S if self._end else self._term_consumer.wait_s(is_asked=is_asked)
            request, term = self._owner._next_request(wait_s), self._term
            if request is not None and request.kind in (_Kind.CLOSE, _Kind.FINISH):
                self._end = Deposed(term=term.number, reason=term.reason or Reason.WITHDRAWN)
                self._answer()
                return request.kind is _Kind.CLOSE
            if request is not None:
                self._open[request.kind] = request
                if request.kind in (_Kind.COMMIT, _Kind.REST):
                    self._answer_one(request)
            if self._end is None:
                self._round()
            self._answer()

    def _round(self) -> None:
        try:
            self._term_consumer.round()
            self._breaks = 0
        except LeaderqError as exc:
            self._over(exc)
        except Exception as exc:
            self._breaks += 1
            kind = type(exc).__name__
            log.warning("Kafka client failed kind=%s error=%s", kind, exc, exc_info=True)
            if self._breaks <= _BREAKS:
                self._term_consumer.mend()
                return
            times = f"{self._breaks} times in a row"
            self._over(KafkaError(f"the Kafka client broke {times}: {kind}: {exc}"))

    def _over(self, exc: BaseException) -> None:
        self._end = exc
        self._term_consumer.close()

    def _answer(self) -> None:
        # Records are asked for last: what is being committed makes room for them.
        for request in sorted(self._open.values(), key=lambda each: each.kind is _Kind.NEXT):
            if self._end or request.kind is not _Kind.NEXT or _Kind.COMMIT not in self._open:
                self._answer_one(request)

    def _answer_one(self, request: _Request) -> None:
        value, error = None, self._end
        if error is None:
            try:
                value = request.ask(self._term_consumer)
            except LeaderqError as exc:
                error = exc
        if value is not _PENDING:
            del self._open[request.kind]
            request.answer.put((value, error))
