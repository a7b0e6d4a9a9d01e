"""Offsets kept in Kafka in one transaction with what the handler produced:
``offsets="transaction"``.

What a batch produces is kept in memory; the transaction is begun, filled and committed when the
batch is. So a refused one can be repeated without handling the batch again.

The broker is authoritative: it refuses a transaction unless both the transactional id's epoch and
the group member are those of the newest leader. What this process knows of a transaction is one
:class:`TransactionState`; :func:`after` is the whole table. On each failure:

* **no answer** (``KafkaAway``): committing the same offsets again continues the transaction.
* **refused** (``MembershipLost``; ``EffectRefused``, for a message that is not accepted): nothing
  was committed. The transaction is aborted, and committing the same offsets again sends the same
  messages again. What the broker has refused is first sent again at once by a producer that sends
  messages one by one: a batch may be refused for its size, or because of another one (B43).
* **the outcome is not known** (``BatchLost``, a client that broke), **the broker gave it up** (open
  for too long), or **the consumer was made again** while a transaction is open: the producer is
  discarded. Fencing with a new one ends the transaction one way or the other; the offsets loaded
  then tell which.
* **fenced**: :class:`~leaderq.errors.KafkaFenced`; the term is over.

A producer that cannot be trusted any more is discarded; the next piece of work makes and fences in
a new one, if the term still allows that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

from leaderq.base import clock
from leaderq.errors import KafkaError, KafkaFenced, LeaderqError, UnknownTopic
from leaderq.kafka.clients.consumer import (
    BatchLost,
    CommitFuture,
    ConsumerClient,
    EffectRefused,
    KafkaAway,
    Offsets,
    OutOfOrder,
)
from leaderq.kafka.clients.producer import (
    REFUSED_MESSAGES,
    TRANSACTION_TIMEOUT_S,
    ProducerClient,
)
from leaderq.kafka.record import Partition
from leaderq.kafka.stores.kafka_offsets import KafkaOffsets
from leaderq.kafka.stores.offset_store import (
    DeliveryPromise,
    KeepsEffects,
    StoreContext,
    Uncommitted,
)
from leaderq.term import Term
from leaderq.threads import SerialExecutor

log = logging.getLogger(__name__)

_FENCE_S = 2.0
_COMMIT_S = 2.0
_ABORT_S = 2.0
_CLOSE_S = 1.0


class TransactionState(Enum):
    """What is known of a transaction.

    ``UNSENT``: nothing of it is in Kafka, or will ever count. ``OPEN``: begun, not asked to be
    committed. ``ASKED``: its commit was asked for; asking again continues it. ``IN_DOUBT``: its
    commit was asked for and its producer is gone; it may still be committed. ``ENDED``: no commit
    can happen any more, and nobody has looked whether one has happened. ``COMMITTED``: it is known
    to be committed.
    """

    UNSENT = "unsent"
    OPEN = "open"
    ASKED = "asked"
    IN_DOUBT = "in doubt"
    ENDED = "ended"
    COMMITTED = "committed"


class TransactionEvent(Enum):
    """What happens to a transaction.

    ``REFUSED``: nothing was committed. ``PRODUCER_GONE``: the producer was discarded. ``FENCED``:
    another producer was fenced in. ``NOT_STORED``: offsets were loaded, and its own are missing.
    """

    BEGUN = "begun"
    COMMIT_ASKED = "commit asked"
    COMMITTED = "committed"
    REFUSED = "refused"
    ABORTED = "aborted"
    PRODUCER_GONE = "producer gone"
    FENCED = "fenced"
    NOT_STORED = "not stored"


_TABLE = {
    (TransactionState.UNSENT, TransactionEvent.BEGUN): TransactionState.OPEN,
    (TransactionState.OPEN, TransactionEvent.COMMIT_ASKED): TransactionState.ASKED,
    (TransactionState.OPEN, TransactionEvent.ABORTED): TransactionState.UNSENT,
    # still open at the broker, but every use of another producer begins with fencing, which aborts
    (TransactionState.OPEN, TransactionEvent.PRODUCER_GONE): TransactionState.UNSENT,
    (TransactionState.ASKED, TransactionEvent.COMMIT_ASKED): TransactionState.ASKED,
    (TransactionState.ASKED, TransactionEvent.COMMITTED): TransactionState.COMMITTED,
    (TransactionState.ASKED, TransactionEvent.REFUSED): TransactionState.OPEN,
    (TransactionState.ASKED, TransactionEvent.PRODUCER_GONE): TransactionState.IN_DOUBT,
    (TransactionState.IN_DOUBT, TransactionEvent.PRODUCER_GONE): TransactionState.IN_DOUBT,
    (TransactionState.IN_DOUBT, TransactionEvent.FENCED): TransactionState.ENDED,
    (TransactionState.ENDED, TransactionEvent.NOT_STORED): TransactionState.UNSENT,
}
_OF_PRODUCER = TransactionState.OPEN, TransactionState.ASKED


def after(state: TransactionState, event: TransactionEvent) -> TransactionState:
    """Return the state of a transaction after ``event``. Raises KafkaError if ``event`` cannot
    happen in ``state``.
    """
    try:
        return _TABLE[state, event]
    except KeyError:
        what = f"a transaction cannot be {event.value} when it is {state.value}"
        raise KafkaError(what) from None


@dataclass(eq=False)
class Transaction(Uncommitted):
    """Messages (its effects) and offsets that belong together; open since ``began_s``."""

    state: TransactionState = TransactionState.UNSENT
    began_s: float = 0.0

    def step(self, event: TransactionEvent) -> None:
        self.state = after(self.state, event)


class TransactionThread:
    """Fences, commits and closes the producer of one term on a thread of its own, which may hang
    for longer than the term; its methods only begin that.
    """

    def __init__(self, make: Callable[[], ProducerClient]) -> None:
        self._make = make
        self._background = SerialExecutor("leaderq-transactions")
        self._allowed: Callable[[], None] = _never
        self._producer: ProducerClient | None = None
        self._is_fenced = False
        self._current: Transaction | None = None  # open, asked, or in doubt
        self._one_by_one = False

    # ---- on the consumer thread ------------------------------------------------------------------

    def fencing(self, allowed: Callable[[], None]) -> CommitFuture:
        """Begin to fence former producers; the future is done once no transaction of any leader is
        open. ``allowed`` raises if this process may not fence; it is called right before each time,
        now and later.
        """
        self._allowed = allowed
        return self._background.submit(self._fence)

    def committing(self, transaction: Transaction, group: Any) -> CommitFuture:
        return self._background.submit(lambda: self._commit(transaction, group))

    def close(self) -> None:
        """Abort an open transaction and close the producer, within about a second. Never raises."""
        self._allowed = _never
        ended = self._background.submit(self._end)
        self._background.close()
        try:
            ended.done(_CLOSE_S)
        except Exception:
            log.debug("closing a producer failed, it is dropped", exc_info=True)

    # ---- on the thread of its own ----------------------------------------------------------------

    @property
    def _is_open(self) -> bool:
        """Whether the present producer has an open transaction; then it is also fenced in."""
        return self._current is not None and self._current.state in _OF_PRODUCER

    def _fence(self) -> None:
        if self._is_open:
            self._discard()
        self._fenced()

    def _fenced(self) -> ProducerClient:
        if self._is_fenced and self._producer is not None:
            return self._producer
        if self._producer is None:
            producer = self._make()
            if self._one_by_one:
                producer.send_one_by_one()
            producer.open()
            self._producer = producer
        self._allowed()
        try:
            self._is_fenced = self._producer.fence(_FENCE_S)
        except Exception:
            self._discard()
            raise
        if not self._is_fenced:
            raise KafkaAway("the broker has not fenced in the producer yet")
        self._step(TransactionEvent.FENCED)
        return self._producer

    def _commit(self, transaction: Transaction, group: Any) -> None:
        try:
            self._try_to_commit(transaction, group)
        except EffectRefused as exc:
            if isinstance(exc.error, UnknownTopic) and not self._one_by_one:
                raise
            self._discard()  # it has lost its place in the sequence of messages (B43)
            self._one_by_one = not self._one_by_one
            if not self._one_by_one:
                raise
            self._commit(transaction, group)
        else:
            if self._one_by_one:
                self._one_by_one = False
                self._discard()

    def _try_to_commit(self, transaction: Transaction, group: Any) -> None:
        if transaction.state is TransactionState.COMMITTED:
            return  # asked for again, because nobody had waited for the answer
        if self._is_open and self._current is not transaction:
            self._discard()  # somebody gave up on that one
        if transaction.state in (TransactionState.IN_DOUBT, TransactionState.ENDED):
            raise BatchLost("whether the transaction was committed is not known")
        producer = self._fenced()
        if transaction.state is TransactionState.UNSENT:
            self._fill(producer, transaction)
        self._step(TransactionEvent.COMMIT_ASKED)
        try:
            producer.commit(transaction.offsets, group, _COMMIT_S)
        except (KafkaAway, KafkaFenced) as exc:
            self._give_up_late(transaction, exc)
            raise
        except Exception as exc:
            if isinstance(exc, BatchLost) or not isinstance(exc, LeaderqError):
                self._discard()
            else:
                self._step(TransactionEvent.REFUSED)
                self._abort(producer)
            raise
        self._step(TransactionEvent.COMMITTED)

    def _fill(self, producer: ProducerClient, transaction: Transaction) -> None:
        self._current, transaction.began_s = transaction, clock.now_s()
        self._step(TransactionEvent.BEGUN)
        try:
            producer.begin()
            for message in transaction.effects:
                producer.produce(message)
        except KafkaFenced:
            self._discard()
            raise
        except Exception as exc:
            self._abort(producer)
            if isinstance(exc, (*REFUSED_MESSAGES, OutOfOrder)):
                raise EffectRefused(exc) from exc
            raise

    def _give_up_late(self, transaction: Transaction, exc: KafkaError) -> None:
        """Discard the producer if it was fenced, or if the transaction has been open for too long.
        In the second case also raise ``BatchLost``. The broker aborts such a transaction and
        refuses its producer, even without a successor. A client that hangs is not waited for any
        longer either.
        """
        is_late = clock.now_s() - transaction.began_s > TRANSACTION_TIMEOUT_S
        if is_late or isinstance(exc, KafkaFenced):
            self._discard()
        if is_late:
            self._allowed()  # a leader that was frozen finds out here that its term is over
            limit_s = TRANSACTION_TIMEOUT_S
            what = f"the broker gave up a transaction that was open for more than {limit_s:g} s"
            raise BatchLost(what) from exc

    def _abort(self, producer: ProducerClient) -> None:
        try:
            producer.abort(_ABORT_S)
        except Exception as exc:  # noqa: BLE001  (another producer takes its place, which aborts it too)
            log.debug("transaction not aborted, the next producer does it error=%s", exc)
            self._discard()
        else:
            self._step(TransactionEvent.ABORTED)

    def _discard(self) -> None:
        self._step(TransactionEvent.PRODUCER_GONE)
        producer, self._producer, self._is_fenced = self._producer, None, False
        if producer is not None:
            producer.close()

    def _step(self, event: TransactionEvent) -> None:
        """Note that ``event`` happened to the producer, and to its transaction, if there is one."""
        current = self._current
        if current is not None:
            current.step(event)
            in_doubt = current.state is TransactionState.IN_DOUBT
            self._current = current if in_doubt or self._is_open else None

    def _end(self) -> None:
        try:
            if self._is_open and self._producer is not None:
                self._producer.abort(_CLOSE_S / 2)
        finally:
            self._discard()


def _never() -> None:
    raise KafkaError("this producer may not be fenced in: no term lasts")


class TransactionOffsets(KeepsEffects):
    """See this module.

    *Guarantees:* a reader with ``read_committed`` sees what was produced for a record exactly once,
    whatever dies. From the moment :meth:`fence` has returned ``True``, an earlier leader can
    neither commit nor produce. *Not guaranteed:* anything for other readers and effects.

    The producer is fenced first: that also ends a transaction left open, which would make the read
    of the offsets wait. The group is joined second, because that takes longer. Offsets are read
    last, when nobody else can move them.
    """

    word = "transaction"
    promises = DeliveryPromise.EXACTLY_ONCE, DeliveryPromise.AT_LEAST_ONCE
    remedy = KafkaOffsets.remedy
    in_group = True
    offers = "produce"
    kept_as = Transaction

    _make: Callable[[], ProducerClient]

    def __init__(self) -> None:
        super().__init__()
        self._transacting: TransactionThread | None = None
        self._fencing: CommitFuture | None = None

    def attach(self, context: StoreContext) -> None:
        assert context.make_producer is not None
        self._make = context.make_producer

    def fence(
        self, consumer: ConsumerClient, term: Term, allowed: Callable[[], None], timeout_s: float
    ) -> bool:
        if self._transacting is None:
            self._transacting = TransactionThread(self._make)
        self._fencing = self._fencing or self._transacting.fencing(allowed)
        try:
            if not self._fencing.done(timeout_s):
                return False
        except BaseException:
            self._fencing = None
            raise
        is_member = consumer.join(allowed, timeout_s)
        if is_member:
            self._fencing = None
        return is_member

    def load(self, consumer: ConsumerClient, term: Term, timeout_s: float) -> dict[Partition, int]:
        stored = consumer.committed(timeout_s)
        uncommitted = self._uncommitted
        if uncommitted is not None and uncommitted.offsets.items() <= stored.items():
            self._uncommitted = None  # its commit has happened after all
        elif uncommitted is not None and uncommitted.state is TransactionState.ENDED:
            uncommitted.step(TransactionEvent.NOT_STORED)
        return stored

    def commit(self, consumer: ConsumerClient, term: Term, offsets: Offsets) -> CommitFuture:
        uncommitted = self._to_commit(offsets)
        committing = self._commit(consumer, uncommitted)
        return _Committing(committing, partial(self._settled, uncommitted), BatchLost)

    def commit_positions(
        self, consumer: ConsumerClient, term: Term, offsets: Offsets
    ) -> CommitFuture:
        """Commit offsets in a transaction without messages; a plain commit would overtake an
        earlier transaction, whose messages would count and whose offsets would not.
        """
        # If the outcome is not known, it is simply done again: no messages go with these.
        committing = self._commit(consumer, Transaction([], dict(offsets)))
        return _Committing(committing, lambda: None, KafkaAway)

    def _commit(self, consumer: ConsumerClient, transaction: Transaction) -> CommitFuture:
        if self._transacting is None:
            raise KafkaAway("no producer is fenced in")
        return self._transacting.committing(transaction, consumer.group_metadata())

    def close(self) -> None:
        self._fencing = None
        self.undo()
        transacting, self._transacting = self._transacting, None
        if transacting is not None:
            transacting.close()


@dataclass(frozen=True)
class _Committing:
    """A commit under way. ``over`` is called when it has happened, and when its outcome is not
    known; then ``lost`` is raised.
    """

    committing: CommitFuture
    over: Callable[[], None]
    lost: type[KafkaError]

    def done(self, wait_s: float) -> bool:
        try:
            is_done = self.committing.done(wait_s)
        except BatchLost as exc:
            self.over()
            raise self.lost(str(exc)) from exc
        if is_done:
            self.over()
        return is_done
