"""Offsets kept in Kafka in one transaction with what the handler produced:
``offsets="transaction"``.

The broker refuses a transaction unless both the transactional id's epoch and the group member are
those of the newest leader. What a batch produces is kept in memory; the transaction is begun,
filled and committed when the batch is, all on one thread. So a refused one can be repeated without
handling the batch again. On each failure:

* **no answer** (``KafkaAway``): committing the same offsets again continues the transaction.
* **the group refused the offsets** (``MembershipLost``): the transaction is aborted. Committing the
  same offsets again, under the new membership, sends the same messages again.
* **the outcome is not known** (``BatchLost``), or **the consumer was made again** while a
  transaction is open: fencing with a new producer settles the transaction one way or the other; the
  offsets loaded then tell which.
* **fenced**: :class:`~leaderq.errors.KafkaFenced`; the term is over.
* **a message cannot be stored**: the transaction is aborted, the commit raises the error, and the
  batch stays undone.

A producer that cannot be trusted any more is discarded; the next piece of work makes and fences in
a new one, if the term still allows that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from leaderq import clock
from leaderq.errors import KafkaError, KafkaFenced
from leaderq.kafka.clients.consumer import (
    BatchLost,
    CommitFuture,
    ConsumerClient,
    KafkaAway,
    Offsets,
    SerialExecutor,
)
from leaderq.kafka.clients.producer import (
    MAX_MESSAGE_BYTES,
    TRANSACTION_TIMEOUT_S,
    Message,
    TransactionalProducer,
    checked,
)
from leaderq.kafka.record import Partition
from leaderq.kafka.stores.offset_store import OffsetStore
from leaderq.term import Term

log = logging.getLogger(__name__)

_FENCE_S = 2.0
_COMMIT_S = 2.0
_ABORT_S = 2.0
_CLOSE_S = 1.0


@dataclass(eq=False)
class Transaction:
    """Messages and offsets that belong together. ``in_doubt``: nobody waits for its commit any
    more, which may still happen. ``is_committed``: it did, whoever noticed.
    """

    messages: list[Message]
    offsets: Offsets
    began_s: float | None = None
    in_doubt: bool = False
    commit_asked: bool = False
    is_committed: bool = False


class TransactionThread:
    """Fences, commits and closes on a thread of its own; its methods only begin that."""

    def __init__(self, make: Callable[[], TransactionalProducer]) -> None:
        self._make = make
        self._background = SerialExecutor("leaderq-transactions")
        self._allowed: Callable[[], None] = _never
        self._producer: TransactionalProducer | None = None
        self._is_fenced = False
        self._open: Transaction | None = None

    # ---- on the consumer thread ------------------------------------------------------------------

    def fencing(self, allowed: Callable[[], None]) -> CommitFuture:
        """Begin to fence; done once no transaction is open, of whichever leader. ``allowed`` raises
        if this process may not; asked right before, now and later.
        """
        self._allowed = allowed
        return self._background.submit(self._fence)

    def committing(self, transaction: Transaction, group: Any) -> CommitFuture:
        return self._background.submit(lambda: self._commit(transaction, group))

    def close(self) -> None:
        """Abort what is open and let the producer go, within about a second; never raises."""
        self._allowed = _never
        ended = self._background.submit(self._end)
        self._background.close()
        try:
            ended.done(_CLOSE_S)
        except Exception:
            log.debug("closing a producer failed, it is dropped", exc_info=True)

    # ---- on the thread of its own ----------------------------------------------------------------

    def _fence(self) -> None:
        if self._open is not None:
            self._discard()
        self._fenced()

    def _fenced(self) -> TransactionalProducer:
        if self._is_fenced and self._producer is not None:
            return self._producer
        if self._producer is None:
            producer = self._make()
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
        return self._producer

    def _commit(self, transaction: Transaction, group: Any) -> None:
        if transaction.is_committed:
            return  # asked for again, because nobody had waited for the answer
        if self._open is not None and self._open is not transaction:
            self._discard()  # somebody gave up on that one
        if transaction.in_doubt:
            raise BatchLost("whether the transaction was committed is not known")
        producer = self._fenced()
        if transaction.began_s is None:
            self._fill(producer, transaction)
        transaction.commit_asked = True
        try:
            producer.commit(transaction.offsets, group, _COMMIT_S)
        except (KafkaAway, KafkaFenced) as exc:
            self._give_up_late(transaction, exc)
            raise
        except BatchLost:
            self._discard()
            raise
        except Exception:
            self._abort()
            raise
        transaction.is_committed = True
        self._open = None

    def _fill(self, producer: TransactionalProducer, transaction: Transaction) -> None:
        try:
            self._open, transaction.began_s = transaction, clock.now_s()
            producer.begin()
            for message in transaction.messages:
                producer.produce(message)
        except KafkaFenced:
            self._discard()
            raise
        except Exception:
            self._abort()
            raise

    def _give_up_late(self, transaction: Transaction, exc: KafkaError) -> None:
        """The broker aborts a transaction that is open for too long and refuses its producer,
        without any successor. A client that hangs is not waited for any longer either.
        """
        began_s, open_s = transaction.began_s, TRANSACTION_TIMEOUT_S
        is_late = began_s is not None and clock.now_s() - began_s > open_s
        if is_late or isinstance(exc, KafkaFenced):
            self._discard()
        if is_late:
            self._allowed()  # a leader that was frozen finds out here that its term is over
            what = f"the broker gave up a transaction that was open for more than {open_s:g} s"
            raise BatchLost(what) from exc

    def _abort(self) -> None:
        producer, transaction = self._producer, self._open
        if producer is None or transaction is None:
            return
        try:
            producer.abort(_ABORT_S)
        except Exception as exc:  # noqa: BLE001  (another producer takes its place, which aborts it too)
            log.debug("transaction not aborted, the next producer does it error=%s", exc)
            self._discard()
        transaction.commit_asked = transaction.in_doubt = False
        self._open = transaction.began_s = None

    def _discard(self) -> None:
        if self._open is not None:
            self._open.in_doubt = self._open.commit_asked
            self._open.began_s = None
        producer, self._producer, self._open, self._is_fenced = self._producer, None, None, False
        if producer is not None:
            producer.close()

    def _end(self) -> None:
        try:
            if self._open is not None and self._producer is not None:
                self._producer.abort(_CLOSE_S / 2)
        finally:
            self._discard()


def _never() -> None:
    raise KafkaError("this producer may not be fenced in: no term lasts")


class TransactionOffsets(OffsetStore):
    """See :class:`~leaderq.kafka.stores.offset_store.OffsetStore`, and this module.

    *Guarantees:* a reader with ``read_committed`` sees what was produced for a record exactly once,
    whatever dies. From the moment :meth:`fence` has returned ``True``, an earlier leader can
    neither commit nor produce. *Not guaranteed:* anything for other readers and effects.

    The producer is fenced first, since that also ends a transaction left open, for which reading
    the offsets would have to wait; the group second, since joining is the longer step; offsets are
    read last, when nobody else can move them.
    """

    in_group = True
    undoes = True
    is_silent = True

    def __init__(
        self,
        make: Callable[[], TransactionalProducer],
        *,
        max_message_bytes: int = MAX_MESSAGE_BYTES,
    ) -> None:
        self._make = make
        self._max_message_bytes = max_message_bytes
        self._messages: list[Message] = []
        self._uncommitted: Transaction | None = None
        self._transacting: TransactionThread | None = None
        self._fencing: CommitFuture | None = None
        self._joined: ConsumerClient | None = None
        self._is_taking = False
        self._is_settled = False  # no transaction has been open since the last fencing

    # ---- for the user's code, on any thread ------------------------------------------------------

    def produce(self, message: Message, max_bytes: int | None = None) -> None:
        """Send ``message`` when the batch in hand is committed, and only then, or raise KafkaError.

        Takes no lock, so it may be interrupted anywhere. Messages of one thread keep their order.
        """
        if not self._is_taking:
            what = "a message can be produced only within a term, while records are handled"
            raise KafkaError(what)
        self._messages.append(checked(message, max_bytes or self._max_message_bytes))

    # ---- for the consumer thread -----------------------------------------------------------------

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
        if self._joined is consumer:  # asked again because offsets are missing, not a membership
            consumer.attend(timeout_s)
            is_member = bool(consumer.assigned())
        else:
            is_member = consumer.join(allowed, timeout_s)
        if is_member:
            self._joined, self._fencing = consumer, None
            self._is_taking = self._is_settled = True
        return is_member

    def load(self, consumer: ConsumerClient, term: Term, timeout_s: float) -> dict[Partition, int]:
        stored = consumer.committed(timeout_s)
        uncommitted, is_settled = self._uncommitted, self._is_settled
        self._is_settled = False
        if uncommitted is not None and uncommitted.offsets.items() <= stored.items():
            self._uncommitted = None  # its commit has happened after all
        elif uncommitted is not None and is_settled:
            # fencing has ended it, and it was not committed
            uncommitted.in_doubt = uncommitted.commit_asked = False
        return stored

    def commit(self, consumer: ConsumerClient, term: Term, offsets: Offsets) -> CommitFuture:
        uncommitted = self._uncommitted
        if uncommitted is None:
            messages, self._messages = self._messages, []
            uncommitted = self._uncommitted = Transaction(messages, dict(offsets))
        elif uncommitted.offsets != offsets:
            raise KafkaError(
                f"offsets {uncommitted.offsets} are not committed yet, and {offsets} are to be;"
                " undo() was left out"
            )
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

    def _settled(self, transaction: Transaction) -> None:
        if self._uncommitted is transaction:
            self._uncommitted = None

    def undo(self) -> None:
        """Forget the messages of the batch in hand; no thread may still handle it."""
        self._messages = []
        self._uncommitted = None

    def close(self) -> None:
        self._is_taking = False
        self._joined = self._fencing = None
        self.undo()
        transacting, self._transacting = self._transacting, None
        if transacting is not None:
            transacting.close()


@dataclass(frozen=True)
class _Committing:
    """A commit; ``over`` is called when it has happened, or its outcome is ``lost``."""

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
