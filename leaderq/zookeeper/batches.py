"""Many small independent transactions in few requests.

A *group* is a few operations that belong together (all or none). Groups that wait are packed into
multis bounded by count and bytes; a bounded number of multis is under way at a time, and while they
are, the next groups gather: the slower the server, the larger the batches. No thread and no timer
is used: packing happens where a group is submitted, or where an answer arrives.

ZooKeeper makes a multi all or none, so one bad group fails the others packed with it, although
nothing is wrong with them. It is told its error, and the others are sent again, split at the place
of the failure: what stood before it is known to be good, what comes after is halved when it has
failed before, so many bad groups in one batch cost a logarithm of requests and not one each.

*Guarantees:* every group's future is settled; a group is applied at most once; groups keep the
order of their submission as long as none fails and the connection holds. *Not guaranteed:* order
across a failure; anything about the groups in flight when the connection breaks: they fail with
``ConnectionLost``, outcome unknown, and are not sent again (a caller that made them idempotent
may). Those not yet sent fail with ``NotConnected``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from leaderq.errors import ConnectionLost, LeaderqError, TooLarge, ZooKeeperError
from leaderq.zookeeper.paths import validated_path
from leaderq.zookeeper.requests import Requests, failed_future
from leaderq.zookeeper.wire import Create, Operation, SetData

MAX_OPS = 500
"""Operations of one multi; a larger one saves nothing, and holds up the server's pipeline."""
MAX_BYTES = 512 * 1024
"""Bytes of one multi, by estimate; half of what a server accepts."""
WINDOW = 8
"""Multis under way at a time."""
_OP_BYTES = 96  # header, lengths, flags, version, ACL: an upper bound for all kinds of operation


@dataclass(slots=True, eq=False)
class _Group:
    operations: tuple[Operation, ...]
    size: int
    future: Future[list[Any]] = field(default_factory=Future)

    def settle(self, outcome: list[Any] | BaseException) -> None:
        # A caller may have cancelled it at any time: the group was sent all the same.
        with suppress(InvalidStateError):
            if isinstance(outcome, BaseException):
                self.future.set_exception(outcome)
            else:
                self.future.set_result(outcome)


@dataclass(slots=True)
class _Batch:
    """Groups for one multi. ``has_failed``: whether they were part of a multi that failed."""

    groups: list[_Group]
    has_failed: bool = False


class MultiBatcher:
    """Packs groups of operations into multis; see the module. For any thread; needs no closing."""

    def __init__(
        self,
        session: Requests,
        *,
        max_ops: int = MAX_OPS,
        max_bytes: int = MAX_BYTES,
        window: int = WINDOW,
    ) -> None:
        self._session = session
        self._max_ops = max(1, max_ops)
        self._max_bytes = min(max_bytes, session.max_request_bytes - 64)
        self._window = max(1, window)
        self._settled = threading.Condition(threading.Lock())  # its lock guards all that follows
        self._waiting: deque[_Group] = deque()
        self._retries: deque[_Batch] = deque()
        self._under_way = 0
        self._is_sending = False
        self._unsettled = 0

    @property
    def unsettled(self) -> int:
        """Groups whose outcome is not known yet; what a caller holds down to bound memory."""
        return self._unsettled

    def submit(self, operations: Sequence[Operation]) -> Future[list[Any]]:
        """Send these operations, all or none, at the next opportunity. Never blocks.

        The future returns what ``Session.multi`` would, or fails as it would, with ``.index``
        counted in this group.

        :raises ConfigurationError: a path that ZooKeeper cannot use.
        """
        return self.submit_all([operations])[0]

    def submit_all(self, groups: Iterable[Sequence[Operation]]) -> list[Future[list[Any]]]:
        """As :meth:`submit` for each; better packed: all are known before the first is sent."""
        made = [self._group(tuple(operations)) for operations in groups]
        waiting = [group for group in made if not group.future.done()]
        with self._settled:
            self._waiting += waiting
            self._unsettled += len(waiting)
        self._send_what_may_go()
        return [group.future for group in made]

    def flush(self, timeout_s: float) -> bool:
        """Return whether everything submitted so far, and meanwhile, is settled in time."""
        with self._settled:
            return self._settled.wait_for(lambda: not self._unsettled, timeout_s)

    # -- inside ------------------------------------------------------------------------------------

    def _group(self, operations: tuple[Operation, ...]) -> _Group:
        for op in operations:  # here, where it fails its own group only, at the call
            validated_path(op.path, open_ended=isinstance(op, Create) and op.sequential)
        chroot_bytes = len(self._session.chroot.encode())
        group = _Group(operations, sum(_estimated_bytes(op) + chroot_bytes for op in operations))
        limit = self._session.max_request_bytes
        if not operations:
            group.settle([])
        elif group.size > limit:
            what = f"a group of {len(operations)} operations"
            group.settle(TooLarge(what, size=group.size, limit=limit, path=operations[0].path))
        return group

    def _send_what_may_go(self) -> None:
        # One thread sends at a time, or two batches could overtake each other; it looks again after
        # each. That also keeps the stack flat when requests fail at once, without a connection.
        while True:
            with self._settled:
                if self._is_sending or self._under_way >= self._window:
                    return
                if (batch := self._next_batch()) is None:
                    return
                self._under_way += 1
                self._is_sending = True
            try:
                operations = [op for group in batch.groups for op in group.operations]
                answer = self._session.multi_async(operations)
            except LeaderqError as exc:
                answer = failed_future(exc)
            answer.add_done_callback(partial(self._answered, batch))
            with self._settled:
                self._is_sending = False

    def _next_batch(self) -> _Batch | None:
        if self._retries:
            return self._retries.popleft()
        groups: list[_Group] = []
        count = size = 0
        while self._waiting:
            head = self._waiting[0]
            count += len(head.operations)
            size += head.size
            if groups and (count > self._max_ops or size > self._max_bytes):
                break
            groups.append(self._waiting.popleft())
        return _Batch(groups) if groups else None

    def _answered(self, batch: _Batch, answer: Future[list[Any]]) -> None:
        outcomes: list[tuple[_Group, list[Any] | BaseException]]
        retries: list[_Batch] = []
        error = answer.exception()
        if error is None:
            results = iter(answer.result())
            outcomes = [(one, [next(results) for _ in one.operations]) for one in batch.groups]
        elif isinstance(error, ConnectionLost) or not (bad := _blamed(batch.groups, error)):
            outcomes = [(one, error) for one in batch.groups]
        else:
            position, own_error = bad
            outcomes = [(batch.groups[position], own_error)]
            retries = list(_parts(batch, position))
        for group, outcome in outcomes:
            group.settle(outcome)
        with self._settled:
            self._retries.extend(retries)
            self._under_way -= 1
            self._unsettled -= len(outcomes)
            if not self._unsettled:
                self._settled.notify_all()
        self._send_what_may_go()


def _blamed(groups: list[_Group], error: BaseException | None) -> tuple[int, LeaderqError] | None:
    """Which group failed by itself, and its error with the index counted in it, if any did."""
    if len(groups) == 1 and isinstance(error, LeaderqError):
        return 0, error
    if not isinstance(error, ZooKeeperError) or error.index is None:
        return None
    first = 0
    for position, group in enumerate(groups):
        if error.index < first + len(group.operations):
            error.index -= first
            return position, error
        first += len(group.operations)
    return None


def _parts(batch: _Batch, position: int) -> Iterator[_Batch]:
    """The batches to send again after the group at ``position`` failed; pure."""
    before, after = batch.groups[:position], batch.groups[position + 1 :]
    half = len(after) // 2 if batch.has_failed else 0
    for groups in (before, after[:half], after[half:]):
        if groups:
            yield _Batch(groups, has_failed=True)


def _estimated_bytes(op: Operation) -> int:
    data = len(op.data) if isinstance(op, (Create, SetData)) else 0
    return _OP_BYTES + len(op.path) * (1 if op.path.isascii() else 4) + data
