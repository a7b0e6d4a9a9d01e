"""Negative controls of drains: edits of the Kafka careers' engine that their lives must notice."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from unittest import mock

from leaderq.kafka.consuming.commits import OffsetCommits
from leaderq.kafka.consuming.term_consumer import TermConsumer
from leaderq.kafka.stores.offset_store import KafkaOffsets
from leaderq.kafka.stores.transaction_offsets import TransactionThread
from leaderq.kafka.stores.zookeeper_offsets import ZooKeeperOffsets
from simulation.control import NegativeControl, patched
from simulation.drain import DrainLife, drain

_of = partial(NegativeControl, lead=drain, make=DrainLife)
_KAFKA, _ZOOKEEPER, _TRANSACTION = (
    {"store": store, "faults": 8} for store in ("kafka", "zookeeper", "transaction")
)


def _under_way_is_done(self: OffsetCommits, *, may_wait: bool) -> Any:
    commit, self._commit = self._commit, None
    return None if commit is None else self._ends


def _unfenced(self: ZooKeeperOffsets, term: Any, offsets: Any, **more: Any) -> None:
    session = self._session

    class Unfenced:
        number = term.number
        check, wait = term.check, term.wait

        def write(self, operations: Any) -> Any:
            return session.multi(operations)

    _write(self, Unfenced(), offsets, **more)


_write = ZooKeeperOffsets._write


def _in_doubt_forgotten(self: TransactionThread) -> None:
    transaction = self._open
    _discard(self)
    if transaction is not None:
        transaction.in_doubt = False


_discard = TransactionThread._discard


@contextmanager
def _unknown_is_committed() -> Iterator[None]:
    real = TermConsumer._resume

    def resume(self: TermConsumer, stored: Any, held: Any) -> None:
        real(self, {**stored, **(self.commits.wanted or {})}, held)

    with mock.patch.object(TermConsumer, "_resume", resume):
        yield


@contextmanager
def _one_too_far() -> Iterator[None]:
    real = KafkaOffsets.commit

    def commit(self: Any, consumer: Any, term: Any, offsets: Any) -> Any:
        return real(self, consumer, term, {where: at + 1 for where, at in offsets.items()})

    with mock.patch.object(KafkaOffsets, "commit", commit):
        yield


@contextmanager
def _not_committed() -> Iterator[None]:
    """What is handled is committed by every third batch only."""
    real, asked = KafkaOffsets.commit, [0]

    def commit(self: Any, consumer: Any, term: Any, offsets: Any) -> Any:
        asked[0] += 1
        return real(self, consumer, term, offsets if asked[0] % 3 else {})

    with mock.patch.object(KafkaOffsets, "commit", commit):
        yield


def _not_placed(self: TermConsumer, consumer: Any) -> None:
    self._is_to_place = False
    self._drop_ahead()


def _may_have_failed(self: ZooKeeperOffsets, term: Any, new: Any) -> bool:
    return False


DRAIN_CONTROLS = (
    _of("offsets are committed one too far", _one_too_far, 0, life=_KAFKA),
    _of("every third commit stores nothing", _not_committed, 1, life=_KAFKA),
    _of(
        "a commit that is under way is done",
        patched(OffsetCommits, "finish", _under_way_is_done),
        0,
        life=_TRANSACTION,
    ),
    _of(
        "nothing is read again after joining again",
        patched(TermConsumer, "_place", _not_placed),
        0,
        life=_KAFKA,
    ),
    _of("an unknown commit is a commit", _unknown_is_committed, 0, life=_TRANSACTION),
    _of(
        "offsets in ZooKeeper are not fenced",
        patched(ZooKeeperOffsets, "_write", _unfenced),
        0,
        life=_ZOOKEEPER,
    ),
    _of(
        "a lost answer of ZooKeeper is a failure",
        patched(ZooKeeperOffsets, "_happened", _may_have_failed),
        0,
        life=_ZOOKEEPER,
    ),
    _of(
        "a lost answer of ZooKeeper is a success",
        patched(ZooKeeperOffsets, "_happened", lambda *_: True),
        0,
        life=_ZOOKEEPER,
    ),
    _of(
        "a transaction in doubt is committed again",
        patched(TransactionThread, "_discard", _in_doubt_forgotten),
        0,
        life=_TRANSACTION,
    ),
)
