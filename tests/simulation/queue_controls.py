"""Negative controls of queues: edits of the program that their lives must notice."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any
from unittest import mock

from leaderq.queues import DistributedDelayQueue, DistributedPriorityQueue, DistributedQueue
from leaderq.queues.consuming import items, pending
from leaderq.queues.consuming.consumption import Item, ItemWorkers
from leaderq.queues.consuming.engine import Engine
from leaderq.queues.consuming.items import Claim
from leaderq.queues.wire import names
from leaderq.queues.wire.names import QueueKind, sequence_of
from leaderq.testing.nemesis.history import Kind
from leaderq.zookeeper import Check, Create, Delete
from leaderq.zookeeper.writing.groups import SendQueue
from simulation.control import NegativeControl, around, patched
from simulation.queues import QueueLife, lead

_FROZEN = (Kind.FREEZE_WORKER,)
_LOST = (Kind.LOSE_CLAIM, Kind.RESET)


_of = partial(NegativeControl, lead=lead, make=QueueLife)


def _only_the_item(claim: Claim) -> Any:
    item = claim.membership.paths.item(claim.name)
    return (Delete(item),) if claim.membership.is_locking else ()


def _persistent_lock(self: Claim) -> Any:
    paths = self.membership.paths
    lock = Create(paths.lock(self.name), self.membership.mark.encode())
    return lock, Check(paths.item(self.name), self.version)


def _no_lock(self: Claim) -> Any:
    item = self.membership.paths.item(self.name)
    return Check(item, self.version), Check(item)


@around(SendQueue, "reconcile")
def _lost_answers_are_failures(real: Any, self: SendQueue, version: int, *, is_new: bool) -> Any:
    applied, lost = real(self, version, is_new=is_new)
    return [], [*lost, *applied]


@around(ItemWorkers, "_work")
def _acknowledged_before_the_work(real: Any, self: ItemWorkers, taken: list[Claim]) -> Any:
    self._engine.settle([items.done(one) for one in taken])
    return [one for one in real(self, taken) if one.outcome.value != "acknowledged"]


@around(Item, "_acknowledged")
def _acknowledged_unasked(real: Any, self: Any, ops: Any, term: Any) -> Any:
    is_part = self._taken.open and not ops and term is None
    return [] if is_part else real(self, ops, term)


@around(DistributedQueue, "put")
def _put_again(real: Any, self: Any, item: Any, **more: Any) -> Any:
    name = real(self, item, **more)
    return real(self, item, **more) if name is True else name


def _requeued(claim: Claim, left: Any, wait_s: float) -> Any:
    note, until_ms = items._failure_note(claim, claim.failures + 1, wait_s)
    again = items._again(claim, left, note)
    outcome = items.ItemOutcome.REQUEUED
    return items.ItemSettlement(claim, (again,), outcome, until_ms)


@around(items, "_failure_note")
def _told_to_nobody(real: Any, claim: Claim, failures: int, wait_s: float) -> Any:
    note, until_ms = real(claim, failures, wait_s)
    return replace(note, not_before_ms=None), until_ms


_PUSHED = {"is_locking": True, "is_taken": False}

QUEUE_CONTROLS = (
    _of(
        "a consumer that was frozen does not ask whether its items are its own",
        patched(Engine, "may_be_begun", lambda *_: True),
        seed=3,
        life={"is_locking": True, "kinds": _FROZEN, "faults": 12},
    ),
    _of(
        "a value that is not the last of its znode is acknowledged without a question",
        _acknowledged_unasked,
        seed=173,
        life={"is_locking": True, "kinds": _FROZEN, "faults": 12},
    ),
    _of(
        "an acknowledgement leaves the lock",
        patched(items, "_removal", _only_the_item),
        seed=0,
        life={"is_locking": True},
    ),
    _of(
        "a lock outlives its session",
        patched(Claim, "operations", property(_persistent_lock)),
        seed=9,
        life={"is_locking": True},
    ),
    _of(
        "a claim takes no lock",
        patched(Claim, "operations", property(_no_lock)),
        seed=0,
        life={"is_locking": True},
    ),
    _of(
        "a write whose answer was lost is taken for a failure",
        _lost_answers_are_failures,
        seed=1,
        life={"kinds": _LOST, "faults": 12},
    ),
    _of("an item is acknowledged before the work", _acknowledged_before_the_work, 0, life=_PUSHED),
    _of(
        "a put whose answer was lost is put again",
        _put_again,
        seed=1,
        life={"kind": DistributedQueue, "kinds": _LOST, "faults": 12},
    ),
    _of(
        "a failed item is put again and not removed",
        patched(items, "requeued", _requeued),
        seed=0,
        life={"is_locking": True},
    ),
    _of(
        "priorities do not matter",
        lambda: mock.patch.dict(names._SORT_KEYS, {QueueKind.PRIORITY: sequence_of}),
        seed=0,
        life={"kind": DistributedPriorityQueue, "consumers": 1, "faults": 1},
    ),
    _of(
        "an item does not wait for its time",
        patched(pending, "due_ms_of", lambda _: 0),
        seed=0,
        life={"kind": DistributedDelayQueue},
    ),
    _of(
        "others are not told how long what failed rests",
        _told_to_nobody,
        seed=0,
        life={"is_locking": True, "kind": DistributedQueue, "faults": 1},
    ),
)
