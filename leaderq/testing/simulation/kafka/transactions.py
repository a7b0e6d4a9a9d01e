"""The simulated transaction coordinator: producer ids, their epochs, and open transactions (pure).

States of a transactional id: *empty*, *ongoing* from the first message or offset, *ending* from the
decision about its end until the last marker is written, *ended*. Only *ongoing* is open for the
producer; while it is *ending*, every request gets CONCURRENT_TRANSACTIONS.

A producer that takes the id over gets a new epoch. From then on all earlier epochs are refused, and
what they left open is aborted. A transaction that is open for longer than its time-out is also
aborted under a new epoch, which no producer has. A decided end is carried out, whatever happens to
the producer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from leaderq.kafka.record import Partition
from leaderq.testing.simulation.kafka.consumer_group import Timers
from leaderq.testing.simulation.kafka.error_codes import ErrorCode, RefusedByBroker

_MARKERS_S = 0.002
"""The time from the decision to end a transaction until its markers are written."""
_MARKERS_AGAIN_S = 0.1


class BrokerTransactionState(Enum):
    """See the module."""

    EMPTY = "empty"
    ONGOING = "ongoing"
    ENDING = "ending"
    ENDED = "ended"


class ProducerIdentity(NamedTuple):
    """The id and epoch that a broker has given to a producer. ``name`` is its transactional id."""

    producer_id: int
    epoch: int
    name: str | None = None


@dataclass(eq=False)
class _Transactional:
    name: str
    producer_id: int
    timeout_s: float
    epoch: int = 0
    state: BrokerTransactionState = BrokerTransactionState.EMPTY
    is_committed: bool = False
    partitions: dict[Partition, None] = field(default_factory=dict)
    groups: dict[str, None] = field(default_factory=dict)
    number: int = 0  # of the transaction, so that an old time-out does nothing


WriteMarkers = Callable[[int, int, bool, dict[Partition, None], dict[str, None]], bool]
"""Ends a transaction (producer id, epoch, committed) in these partitions and groups: removes those
that it could end now, and returns whether none is left.
"""


class TransactionCoordinator:
    """See the module. Not thread-safe."""

    def __init__(self, timers: Timers, write_markers: WriteMarkers) -> None:
        self._timers = timers
        self._write_markers = write_markers
        self._ids = 0
        self._by_name: dict[str, _Transactional] = {}

    def initialize(self, name: str | None, timeout_s: float) -> ProducerIdentity:
        """Return a new identity; for a transactional id, with the next epoch, when no transaction
        of it is open any more.
        """
        if name is None:
            self._ids += 1
            return ProducerIdentity(self._ids, 0)
        found = self._by_name.get(name)
        if found is None:
            self._ids += 1
            found = self._by_name[name] = _Transactional(name, self._ids, timeout_s)
            return ProducerIdentity(found.producer_id, 0, name)
        if found.state is BrokerTransactionState.ONGOING:
            found.epoch += 1  # fences, before anything else can be done under the former one
            self._decide(found, is_committed=False)
        if found.state is BrokerTransactionState.ENDING:
            raise RefusedByBroker(ErrorCode.CONCURRENT_TRANSACTIONS, name)
        found.epoch += 1
        found.timeout_s = timeout_s
        found.state = BrokerTransactionState.EMPTY
        return ProducerIdentity(found.producer_id, found.epoch, name)

    def begin_in(
        self, who: ProducerIdentity, *, partition: Partition | None = None, group: str | None = None
    ) -> None:
        """Add a partition, or the offsets of a group, to the producer's transaction; the first one
        begins the transaction.
        """
        found = self._checked(who)
        if found.state is BrokerTransactionState.ENDING:
            raise RefusedByBroker(ErrorCode.CONCURRENT_TRANSACTIONS, found.name)
        if found.state is not BrokerTransactionState.ONGOING:
            found.state = BrokerTransactionState.ONGOING
            found.number += 1
            number = found.number
            due_s = self._timers.time_s + found.timeout_s
            self._timers.at(due_s, lambda: self._time_is_up(found, number))
        if partition is not None:
            found.partitions[partition] = None
        if group is not None:
            found.groups[group] = None

    def end(self, who: ProducerIdentity, *, is_committed: bool) -> None:
        """Decide how the transaction ends. If the same end is asked for again, accept that."""
        found = self._checked(who)
        if found.state is BrokerTransactionState.ONGOING:
            self._decide(found, is_committed=is_committed)
        elif found.state is BrokerTransactionState.EMPTY or found.is_committed is not is_committed:
            raise RefusedByBroker(ErrorCode.INVALID_TXN_STATE, found.name)

    def forget_topic(self, topic: str) -> None:
        for each in self._by_name.values():
            for where in [one for one in each.partitions if one.topic == topic]:
                del each.partitions[where]

    def _checked(self, who: ProducerIdentity) -> _Transactional:
        found = self._by_name.get(who.name or "")
        if found is None or found.producer_id != who.producer_id:
            raise RefusedByBroker(ErrorCode.UNKNOWN_PRODUCER_ID, who.name)
        if found.epoch != who.epoch:
            what = f"{who.name} epoch {who.epoch}, it is {found.epoch}"
            raise RefusedByBroker(ErrorCode.PRODUCER_FENCED, what)
        return found

    def _time_is_up(self, found: _Transactional, number: int) -> None:
        if found.state is BrokerTransactionState.ONGOING and found.number == number:
            found.epoch += 1
            self._decide(found, is_committed=False)

    def _decide(self, found: _Transactional, *, is_committed: bool) -> None:
        found.state, found.is_committed = BrokerTransactionState.ENDING, is_committed
        epoch = found.epoch

        def write() -> None:
            done = self._write_markers(
                found.producer_id, epoch, is_committed, found.partitions, found.groups
            )
            if done:
                found.state = BrokerTransactionState.ENDED
            else:  # a partition has no leader now
                self._timers.at(self._timers.time_s + _MARKERS_AGAIN_S, write)

        self._timers.at(self._timers.time_s + _MARKERS_S, write)
