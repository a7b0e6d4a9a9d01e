"""Negative controls of queues: edits of the program that their lives must notice."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from leaderq.queues import DistributedDelayQueue, DistributedPriorityQueue, DistributedQueue
from leaderq.queues.consuming import members, pending, settling
from leaderq.queues.consuming.claims import Claim
from leaderq.queues.consuming.engine import Engine
from leaderq.queues.consuming.workers import ItemWorkers
from leaderq.queues.wire import names
from leaderq.queues.wire.names import QueueKind, sequence_of
from leaderq.testing.nemesis.history import Kind
from leaderq.writing.groups import SendQueue
from leaderq.zookeeper import Check, Create, Delete
from simulation.queues import QueueLife, lead

_FROZEN = (Kind.FREEZE_WORKER,)
_LOST = (Kind.LOSE_CLAIM, Kind.RESET)


@dataclass(frozen=True)
class QueueControl:
    """``name`` says what is taken out; ``seed``: the first life that was found to show it."""

    name: str
    edit: Callable[[], Any]
    seed: int
    life: dict[str, Any] = field(default_factory=dict)

    def is_clean(self) -> bool:
        """Whether the life that shows it shows nothing with the program as it is."""
        return not lead(QueueLife(self.seed, **self.life)).problems

    def search(self, first: int, lives: int) -> tuple[int, str] | None:
        """The first seed from ``first`` on that shows it, and how; ``None``: none of ``lives``."""
        for seed in range(first, first + lives):
            with self.edit():
                problems = lead(QueueLife(seed, **self.life)).problems
            if problems:
                return seed, problems[0]
        return None


def _patched(owner: Any, name: str, value: Any) -> Callable[[], Any]:
    return lambda: mock.patch.object(owner, name, value)


def _only_the_item(claim: Claim) -> Any:
    item = claim.membership.paths.item(claim.name)
    return (Delete(item),) if claim.membership.is_locking else ()


def _persistent_lock(self: Claim) -> Any:
    paths = self.membership.paths
    lock = Create(paths.lock(self.name), self.membership.mark)
    return lock, Check(paths.item(self.name), self.version)


def _no_lock(self: Claim) -> Any:
    item = self.membership.paths.item(self.name)
    return Check(item, self.version), Check(item)


@contextmanager
def _lost_answers_are_failures() -> Iterator[None]:
    real = SendQueue.reconcile

    def reconcile(self: SendQueue, version: int, *, is_new: bool) -> Any:
        applied, lost = real(self, version, is_new=is_new)
        return [], [*lost, *applied]

    with mock.patch.object(SendQueue, "reconcile", reconcile):
        yield


@contextmanager
def _acknowledged_before_the_work() -> Iterator[None]:
    real = ItemWorkers._work

    def work(self: ItemWorkers, taken: list[Claim]) -> Any:
        self._engine.settle([settling.done(one) for one in taken])
        return [one for one in real(self, taken) if one.outcome.value != "acknowledged"]

    with mock.patch.object(ItemWorkers, "_work", work):
        yield


@contextmanager
def _put_again() -> Iterator[None]:
    real = DistributedQueue.put

    def put(self: Any, item: Any, **more: Any) -> Any:
        name = real(self, item, **more)
        return real(self, item, **more) if name is True else name

    with mock.patch.object(DistributedQueue, "put", put):
        yield


@contextmanager
def _members_outlive_sessions() -> Iterator[None]:
    real = members.SequencedWriter

    def writer(session: Any, path: str, **more: Any) -> Any:
        return real(session, path, **{**more, "ephemeral": False})

    with mock.patch.object(members, "SequencedWriter", writer):
        yield


def _requeued(claim: Claim, left: Any, wait_s: float) -> Any:
    note, until_ms = settling._failure_note(claim, claim.failures + 1, wait_s)
    again = settling._again(claim, left, note)
    outcome = settling.ItemOutcome.REQUEUED
    return settling.ItemSettlement(claim, (again,), outcome, until_ms)


_TAKEN = {"is_locking": True, "is_taken": True}
_PUSHED = {"is_locking": True, "is_taken": False}

QUEUE_CONTROLS = (
    QueueControl(
        "a consumer that was frozen does not ask whether its items are its own",
        _patched(Engine, "may_be_begun", lambda *_: True),
        seed=96,
        life={"is_locking": True, "kinds": _FROZEN, "faults": 12},
    ),
    QueueControl(
        "an acknowledgement leaves the lock",
        _patched(settling, "_removal", _only_the_item),
        seed=0,
        life={"is_locking": True},
    ),
    QueueControl(
        "a lock outlives its session",
        _patched(Claim, "operations", property(_persistent_lock)),
        seed=9,
        life={"is_locking": True},
    ),
    QueueControl(
        "a claim takes no lock",
        _patched(Claim, "operations", property(_no_lock)),
        seed=0,
        life={"is_locking": True},
    ),
    QueueControl(
        "a write whose answer was lost is taken for a failure",
        _lost_answers_are_failures,
        seed=4,
        life={"kinds": _LOST, "faults": 12},
    ),
    QueueControl(
        "an item is acknowledged before the work", _acknowledged_before_the_work, 0, _PUSHED
    ),
    QueueControl(
        "a put whose answer was lost is put again",
        _put_again,
        seed=1,
        life={"kind": DistributedQueue, "kinds": _LOST, "faults": 12},
    ),
    QueueControl(
        "an acknowledgement is not fenced by the session",
        _members_outlive_sessions,
        seed=1204,
        life={**_TAKEN, "kinds": _FROZEN, "faults": 15, "longest_s": 4.0, "items": 15},
    ),
    QueueControl(
        "a failed item is put again and not removed",
        _patched(settling, "requeued", _requeued),
        seed=0,
        life={"is_locking": True},
    ),
    QueueControl(
        "priorities do not matter",
        lambda: mock.patch.dict(names._SORT_KEYS, {QueueKind.PRIORITY: sequence_of}),
        seed=0,
        life={"kind": DistributedPriorityQueue, "consumers": 1, "faults": 1},
    ),
    QueueControl(
        "an item does not wait for its time",
        _patched(pending, "due_ms_of", lambda _: 0),
        seed=0,
        life={"kind": DistributedDelayQueue},
    ),
)
