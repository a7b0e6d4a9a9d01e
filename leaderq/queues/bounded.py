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
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from leaderq import chance
from leaderq.errors import BadVersion, ConnectionLost, LeaderqError, NoNode, QueueClosed
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.reading import existing
from leaderq.threads import Service, primitives
from leaderq.writing import SequencedWriter
from leaderq.writing.groups import MULTI_BYTES, MULTI_OPS, OperationGroup, packed
from leaderq.zookeeper import Session, SetData, Subscription

log = logging.getLogger(__name__)
_LOOK_S = 1.0  # a watch tells the news; this is for lost ones
_POLL_S = 0.1
_CALM_S = 0.005


class BoundedPut:
    """See the module. Takes the writer's place, which a queue without a bound uses directly."""

    def __init__(
        self,
        writer: SequencedWriter,
        session: Session,
        paths: QueuePaths,
        max_items: int,
        name: str,
    ) -> None:
        self._writer = writer
        self._session = session
        self._paths = paths
        self._max_items = max_items
        self._lock = primitives.Lock()
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
        with self._lock:
            found = [group for group in self._waiting if wanted(group)]
            self._waiting = deque(group for group in self._waiting if not wanted(group))
            return found

    def close(self) -> None:
        """Waiting puts fail with ``QueueClosed``; those under way are left to the writer."""
        with self._lock:
            self._is_closed = True
            left, self._waiting = self._waiting, deque()
        _fail(left, QueueClosed("the queue was closed before there was room for this"))
        self._service.stop(1.0)

    def _run(self, service: Service) -> None:
        while not self._is_closed:
            service.wait(0)
            if not self._waiting:
                self._stop_watching()
                service.wait()
                continue
            try:
                if self._room <= 0:
                    self._room = self._counted()
                if self._room > 0:
                    self._send_some()
                else:
                    self._await_room()
            except LeaderqError as exc:
                is_usual = isinstance(exc, ConnectionLost) or self._is_closed
                level = logging.DEBUG if is_usual else logging.WARNING
                log.log(level, "items not counted now queue=%s error=%s", self._paths.path, exc)
                self._room = 0
                service.wait(_POLL_S)
        self._stop_watching()

    def _counted(self) -> int:
        paths = self._paths
        found = existing(self._session, (paths.bound, paths.path))  # in this order
        if paths.bound not in found:
            self._session.ensure_path(paths.bound)
            return self._counted()
        self._version = found[paths.bound][1].version
        return self._max_items - (found[paths.path][1].num_children if paths.path in found else 0)

    def _await_room(self) -> None:
        if self._watch is not None:
            self._service.wait(_LOOK_S)
            return
        # something may have happened before the watch was set: count again
        self._watch = self._session.watch_node(self._paths.path, lambda _: self._service.wake())

    def _stop_watching(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def _send_some(self) -> None:
        with self._lock:
            puts = packed(self._waiting, min(self._room, MULTI_OPS) + 1, MULTI_BYTES)
        if not puts:
            return
        guard = SetData(self._paths.bound, b"", self._version)
        sent = self._writer.submit([guard, *(op for put in puts for op in put.operations)])
        error = sent.exception()  # the writer tells each group: at its own close at the latest
        if error is None:
            results = sent.result()
            self._version += 1
            self._room = 0 if results is None else self._room - len(puts)
            for position, put in enumerate(puts, 1):
                put.settle(None if results is None else [results[position]])
            return
        self._room = 0
        if getattr(error, "index", None) == 0 and isinstance(error, BadVersion | NoNode):
            self._put_back(puts)
            # several producers that meet here should not meet again at once
            self._service.wait(chance.random() * _CALM_S)
        elif len(puts) > 1 and not isinstance(error, ConnectionLost | QueueClosed):
            for put in puts:
                put.is_alone = True
            self._put_back(puts)
        else:
            _fail(puts, error)

    def _put_back(self, puts: list[OperationGroup]) -> None:
        with self._lock:
            if not self._is_closed:
                self._waiting.extendleft(reversed(puts))
                return
        _fail(puts, QueueClosed("the queue was closed before there was room for this"))


def _fail(groups: Iterable[OperationGroup], error: BaseException) -> None:
    for group in groups:
        group.settle(error=error if isinstance(error, LeaderqError) else ConnectionLost(str(error)))
