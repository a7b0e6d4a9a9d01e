"""Offsets kept in Kafka in one transaction with what the handler produced:
``offsets="transaction"``.

What a batch produces is kept in memory; the transaction is begun, filled and committed when the
batch is. So a refused one can be repeated without handling the batch again: see
:mod:`leaderq.kafka.stores.transaction`, which carries it out, and knows what each failure means.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from leaderq.errors import KafkaError
from leaderq.kafka.clients.consumer import (
    BatchLost,
    CommitFuture,
    ConsumerClient,
    KafkaAway,
    Offsets,
)
from leaderq.kafka.clients.producer import ProducerClient
from leaderq.kafka.record import Partition
from leaderq.kafka.stores.kafka_offsets import GROUP_REMEDY
from leaderq.kafka.stores.offset_store import DeliveryPromise, KeepsEffects, StoreContext
from leaderq.kafka.stores.transaction import (
    Transaction,
    TransactionEvent,
    TransactionState,
    TransactionThread,
)
from leaderq.term import Term


class TransactionOffsets(KeepsEffects):
    """See :class:`~leaderq.kafka.stores.offset_store.OffsetStore`, and this module.

    *Guarantees:* a reader with ``read_committed`` sees what was produced for a record exactly once,
    whatever dies. From the moment :meth:`fence` has returned ``True``, an earlier leader can
    neither commit nor produce. *Not guaranteed:* anything for other readers and effects.

    The producer is fenced first: that also ends a transaction left open, which would make the read
    of the offsets wait. The group is joined second, because that takes longer. Offsets are read
    last, when nobody else can move them.
    """

    word = "transaction"
    promises = DeliveryPromise.EXACTLY_ONCE, DeliveryPromise.AT_LEAST_ONCE
    remedy = GROUP_REMEDY
    in_group = True
    offers = "produce"

    _make: Callable[[], ProducerClient]

    def __init__(self) -> None:
        super().__init__()
        self._transacting: TransactionThread | None = None
        self._fencing: CommitFuture | None = None
        self._joined: ConsumerClient | None = None

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
        if self._joined is consumer:  # asked again because offsets are missing, not a membership
            consumer.attend(timeout_s)
            is_member = bool(consumer.assigned())
        else:
            is_member = consumer.join(allowed, timeout_s)
        if is_member:
            self._joined, self._fencing = consumer, None
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
        uncommitted = self._to_commit(Transaction, offsets)
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
        self._joined = self._fencing = None
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
