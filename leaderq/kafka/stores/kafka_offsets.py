"""The group's committed offsets: ``offsets="kafka"``."""

from __future__ import annotations

from leaderq.kafka.clients.consumer import CommitFuture, ConsumerClient, Offsets
from leaderq.kafka.record import Partition
from leaderq.kafka.stores.offset_store import DeliveryPromise, OffsetStore
from leaderq.term import Term


class KafkaOffsets(OffsetStore):
    """The group's committed offsets in Kafka itself; the fence is the static membership (KIP-345).

    *Guarantees:* once :meth:`fence` has returned ``True``, no earlier member of the name can
    commit. *Not guaranteed:* anything against commits from outside while the group has no member.
    """

    word = "kafka"
    promises = DeliveryPromise.AT_LEAST_ONCE, DeliveryPromise.AT_MOST_ONCE
    remedy = "set the group's offsets (leaderq offsets set)"
    in_group = True

    def load(self, consumer: ConsumerClient, term: Term, timeout_s: float) -> dict[Partition, int]:
        return consumer.committed(timeout_s)

    def commit(self, consumer: ConsumerClient, term: Term, offsets: Offsets) -> CommitFuture:
        return consumer.commit(offsets, f"leaderq term {term.number}")
