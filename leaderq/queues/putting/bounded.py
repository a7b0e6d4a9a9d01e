"""Puts into a queue that may hold ``max_items`` znodes and no more, tight among all producers that
go this way.

One thread sends one multi at a time: ``SetData(bound, version)``, then as many creates as there is
room for. The bound (a znode beside the queue) is read *before* the number of the queue's children
(its ``Stat``). So if the version still fits when the multi is applied, no other producer has put
anything since, and the room is real; consumers can only have made more. If it does not fit, nothing
was stored, and it is tried again. A persistent watch tells when to count again. Java producers do
not know the bound: they are not held back by it, and what they put counts.
"""

from __future__ import annotations

import logging
import random
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from leaderq.errors import BadVersion, ConnectionLost, LeaderqError, NoNode, QueueClosed
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.threads import Service
from leaderq.writing import SequencedWriter
from leaderq.writing.groups import MULTI_BYTES, MULTI_OPS, OperationGroup, estimated_bytes
from leaderq.zookeeper import GetData, Operation, Session, SetData, Stat, Subscription

log = logging.getLogger(__name__)
_LOOK_S = 1.0  # news come by a watch; this is for those that got lost
_POLL_S = 0.1
_CALM_S = 0.005


class _GuardedPuts(OperationGroup):
    """Puts that share a guard: stored together or not at all."""

    __slots__ = ("error", "is_over", "puts", "results")

    def __init__(
        self, operations: Sequence[Operation], size: int, puts: list[OperationGroup]
    ) -> None:
        super().__init__(operations, size)
        self.puts = puts
        self.results: list[Any] | None = None
        self.error: LeaderqError | None = None
        self.is_over = threading.Event()

    def on_outcome(self, results: list[Any] | None, error: LeaderqError | None) -> None:
        self.results, self.error = results, error
        self.is_over.set()


class BoundedPut:
    """See the module. Each group sent hears of its outcome by itself, unless it was withdrawn."""

    def __init__(
        self,
        writer: SequencedWriter,
        session: Session,
        paths: QueuePaths,
        max_items: int,
        *,
        name: str,
    ) -> None:
        self._writer = writer
        self._session = session
        self._paths = paths
        self._max_items = max_items
        self._lock = threading.Lock()
        self._waiting: deque[OperationGroup] = deque()
        self._is_closed = False
        self._version = 0
        self._room = 0
        self._watch: Subscription | None = None
        self._service = Service(f"leaderq-{name}-bound", self._run)
        self._service.start()

    def send(self, groups: Sequence[OperationGroup]) -> None:
        with self._lock:
            if not self._is_closed:
                self._waiting.extend(groups)
                self._service.wake()
                return
        _fail(groups, QueueClosed("the queue was closed before this was sent"))

    def withdraw_those(self, wanted: Callable[[OperationGroup], bool]) -> list[OperationGroup]:
        """Give up all of these that were certainly not sent, and say which."""
        with self._lock:
            found = [group for group in self._waiting if wanted(group)]
            self._waiting = deque(group for group in self._waiting if not wanted(group))
            return found

    def close(self) -> None:
        """What waits fails with ``QueueClosed``; what is under way is the writer's."""
        with self._lock:
            self._is_closed = True
            left, self._waiting = list(self._waiting), deque()
            self._service.wake()
        _fail(left, QueueClosed("the queue was closed before there was room for this"))
        self._service.stop(1.0)

    def _run(self, service: Service) -> None:
        while not self._is_closed:
            service.wait(0)
            if not self._waiting:
                self._stop_watching()
                self._service.wait()
                continue
            try:
                if self._room <= 0:
                    self._room = self._counted()
                if self._room <= 0:
                    self._await_room()
                    continue
                self._turn()
            except LeaderqError as exc:
                level = (
                    logging.DEBUG
                    if isinstance(exc, ConnectionLost) or self._is_closed
                    else logging.WARNING
                )
                log.log(level, "%s cannot be counted for now: %s", self._paths.path, exc)
                self._room = 0
                self._service.wait(_POLL_S)
        self._stop_watching()

    def _counted(self) -> int:
        bound, queue = self._session.multi_read(
            [GetData(self._paths.bound), GetData(self._paths.path)]
        )
        if isinstance(bound, NoNode):
            self._session.ensure_path(self._paths.bound)
            return self._counted()
        for answer in (bound, queue):
            if isinstance(answer, LeaderqError) and not isinstance(answer, NoNode):
                raise answer
        self._version = _stat(bound).version
        return self._max_items - (0 if isinstance(queue, NoNode) else _stat(queue).num_children)

    def _await_room(self) -> None:
        if self._watch is None:
            try:
                self._watch = self._session.watch_node(
                    self._paths.path, lambda _: self._service.wake()
                )
                return  # something may have happened before the watch stood: count again
            except ConnectionLost:
                raise
            except LeaderqError as exc:  # a server before 3.6
                log.debug("no watch on %s: %s", self._paths.path, exc)
        self._service.wait(_POLL_S if self._watch is None else _LOOK_S)

    def _stop_watching(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _turn(self) -> None:
        group = self._taken()
        if group is None:
            return
        self._writer.send([group])
        group.is_over.wait()  # the writer tells each group: at its own close at the latest
        error = group.error
        if error is None:
            self._version += 1
            self._room = self._room - len(group.puts) if group.results is not None else 0
            for position, put in enumerate(group.puts, 1):
                put.settle(None if group.results is None else [group.results[position]])
            return
        self._room = 0
        is_guard = getattr(error, "index", None) == 0
        if is_guard and isinstance(error, BadVersion | NoNode):
            self._give_back(group.puts)
            # several producers that meet here should not meet again at once
            self._service.wait(random.random() * _CALM_S)
        elif len(group.puts) > 1 and not isinstance(error, ConnectionLost | QueueClosed):
            for put in group.puts:
                put.is_alone = True
            self._give_back(group.puts)
        else:
            _fail(group.puts, error)

    def _taken(self) -> _GuardedPuts | None:
        guard = SetData(self._paths.bound, b"", self._version)
        size = estimated_bytes([guard], len(self._session.chroot.encode()))
        puts: list[OperationGroup] = []
        with self._lock:
            while self._waiting and len(puts) < min(self._room, MULTI_OPS):
                head = self._waiting[0]
                if puts and (size + head.size > MULTI_BYTES or head.is_alone or puts[-1].is_alone):
                    break
                puts.append(self._waiting.popleft())
                size += head.size
        return (
            _GuardedPuts([guard, *(op for put in puts for op in put.operations)], size, puts)
            if puts
            else None
        )

    def _give_back(self, puts: list[OperationGroup]) -> None:
        with self._lock:
            if not self._is_closed:
                self._waiting.extendleft(reversed(puts))
                return
        _fail(puts, QueueClosed("the queue was closed before there was room for this"))


def _stat(answer: Any) -> Stat:
    stat: Stat = answer[1]
    return stat


def _fail(groups: Sequence[OperationGroup], error: LeaderqError) -> None:
    for group in groups:
        group.settle(error=error)
