"""Negative controls of drains: edits of the Kafka careers' engine that their lives must notice."""

from __future__ import annotations

import itertools
from functools import partial
from typing import Any

from leaderq.election.tenure import Tenure
from leaderq.fencing import sql
from leaderq.kafka.consuming.commits import CommitState, OffsetCommits
from leaderq.kafka.consuming.term_consumer import TermConsumer
from leaderq.kafka.handling import chains
from leaderq.kafka.handling.chains import InHand
from leaderq.kafka.handling.context import RecordOrder
from leaderq.kafka.stores import database_offsets, offset_store
from leaderq.kafka.stores.kafka_offsets import KafkaOffsets
from leaderq.kafka.stores.zookeeper_offsets import ZooKeeperOffsets
from simulation.control import NegativeControl, around, patched, together
from simulation.drain import STORES, DrainLife, lead

_of = partial(NegativeControl, lead=lead, make=DrainLife)
_KAFKA, _ZOOKEEPER, _TRANSACTION, _EXTERNAL = ({"store": store, "faults": 8} for store in STORES)
_BY_KEY = {**_KAFKA, "by_key": True}
_ZOMBIES = {"zombies": 3, "faults": 1}


def _under_way_is_done(self: OffsetCommits, *, may_wait: bool) -> Any:
    if self.state is not CommitState.UNDER_WAY:
        return None
    self.stored()
    return self._ends


@around(KafkaOffsets, "commit")
def _one_too_far(real: Any, self: Any, consumer: Any, term: Any, offsets: Any) -> Any:
    return real(self, consumer, term, {where: at + 1 for where, at in offsets.items()})


@around(KafkaOffsets, "commit")
def _not_committed(real: Any, self: Any, consumer: Any, term: Any, offsets: Any) -> Any:
    count = vars(self).setdefault("count", itertools.count(1))  # so each life is as if alone
    return real(self, consumer, term, offsets if next(count) % 3 else {})


def _over_gaps(self: InHand, *, alone: bool) -> Any:
    for lane in self._lanes.values():
        in_order = sorted(lane, key=lambda piece: not piece.is_done)
        lane.clear()
        lane.extend(in_order)
    return [piece for lane in self._lanes.values() for piece in lane if piece.is_done]


@around(chains, "by_records")
def _shuffled(real: Any, records: Any, _order: Any) -> Any:
    return real(records, RecordOrder.NONE)


def _given_at_once(effect: Any) -> None:
    effect()


def _not_placed(self: TermConsumer, consumer: Any) -> None:
    self._is_to_place = False
    self._ahead.clear()


def _may_have_failed(self: ZooKeeperOffsets, term: Any, new: Any) -> bool:
    return False


@around(TermConsumer, "offer_behind")
def _with_the_next(real: Any, self: TermConsumer) -> Any:
    following = real(self)
    if following is not None:
        self.commits._ends = {**self.commits._ends, **following.ends}
    return following


def _unfenced(self: Tenure, term: Any, operations: Any) -> Any:
    return self._session.multi(list(operations), timeout_s=5.0)


@around(TermConsumer, "_resume")
def _unknown_is_committed(real: Any, self: TermConsumer, stored: Any, held: Any) -> None:
    if self.commits.state is CommitState.UNKNOWN:
        stored = {**stored, **(self.commits.wanted or {})}
    real(self, stored, held)


@around(sql, "upsert")
def _any_term(real: Any, *given: Any, **more: Any) -> str:
    return str(real(*given, **more).partition(" WHERE")[0])


_NO_OFFSET = f"{database_offsets.ONE_OFFSET} AND 1 = 0"
_LINES_OF_DATABASES = together(_any_term, patched(database_offsets, "ONE_OFFSET", _NO_OFFSET))

DRAIN_CONTROLS = (
    _of(
        "a key that is done commits the others",
        patched(InHand, "finished", _over_gaps),
        5,
        life=_BY_KEY,
    ),
    _of(
        "the next batch is committed with the one before it",
        _with_the_next,
        0,
        life={**_KAFKA, "commit_behind": True},
    ),
    _of("keys are not kept in order", _shuffled, 0, life=_BY_KEY),
    _of(
        "effects of records side by side are stored as they come",
        patched(offset_store, "take_effect", _given_at_once),
        0,
        life={**_TRANSACTION, "by_key": True, "in_coroutines": True},
    ),
    _of("offsets are committed one too far", _one_too_far, 0, life=_KAFKA),
    _of("every third commit stores nothing", _not_committed, 11, life=_KAFKA),
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
    _of(
        "a lost answer of ZooKeeper is a failure",
        patched(ZooKeeperOffsets, "_happened", _may_have_failed),
        38,
        life=_ZOOKEEPER,
    ),
    _of(
        "a lost answer of ZooKeeper is a success",
        patched(ZooKeeperOffsets, "_happened", lambda *_: True),
        40,
        life=_ZOOKEEPER,
    ),
    _of("an unknown commit is a commit", _unknown_is_committed, 7, life=_TRANSACTION),
    _of(
        "offsets in ZooKeeper are not fenced",
        patched(Tenure, "write", _unfenced),
        1,
        life={**_ZOOKEEPER, **_ZOMBIES},
    ),
    _of(
        "a database does not look at the offset that it has",
        patched(database_offsets, "ONE_OFFSET", _NO_OFFSET),
        1,
        life=_EXTERNAL,
    ),
    _of(
        "a database looks neither at terms nor at offsets",
        _LINES_OF_DATABASES,
        8,
        life={**_EXTERNAL, **_ZOMBIES},
    ),
)
