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

import functools
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass
from time import monotonic
from typing import Any, Protocol

from leaderq.errors import ConnectionLost, LeaderqError, TooLarge, ZooKeeperError
from leaderq.zookeeper.paths import validated_path
from leaderq.zookeeper.wire import Create, Operation, SetData

MAX_OPS = 500
"""Operations of one multi; beyond this a larger one saves nothing, and holds up the server's pipeline."""
MAX_BYTES = 512 * 1024
"""Bytes of one multi, by estimate; half of what a server accepts."""
WINDOW = 8
"""Multis under way at a time."""
_OP_BYTES = 96  # header, lengths, flags, version, ACL: an upper bound for all kinds of operation


class SendsMultis(Protocol):
    """What a batcher needs of a session."""

    @property
    def max_request_bytes(self) -> int: ...

    @property
    def chroot(self) -> str: ...

    def multi_async(self, operations: Sequence[Operation]) -> Future[list[Any]]: ...


@dataclass(slots=True, eq=False)
class _Group:
    operations: tuple[Operation, ...]
    size: int
    future: Future[list[Any]]


@dataclass(slots=True)
class _Batch:
    """Groups to be sent in one multi. ``has_failed``: whether they were part of a multi that failed."""

    groups: list[_Group]
    has_failed: bool = False


class MultiBatcher:
    """Packs groups of operations into multis; see the module. May be used from any thread. Needs no closing."""

    def __init__(
        self, session: SendsMultis, *, max_ops: int = MAX_OPS, max_bytes: int = MAX_BYTES, window: int = WINDOW
    ) -> None:
        self._session = session
        self._max_ops = max(1, max_ops)
        self._max_bytes = min(max_bytes, session.max_request_bytes - 64)
        self._window = max(1, window)
        self._lock = threading.Lock()
        self._waiting: deque[_Group] = deque()
        self._retries: deque[_Batch] = deque()
        self._under_way = 0
        self._pumps_wanted = 0
        self._unsettled = 0
        self._settled = threading.Condition(self._lock)

    @property
    def unsettled(self) -> int:
        """Groups whose outcome is not known yet; what a caller holds down to bound memory."""
        return self._unsettled

    def submit(self, operations: Sequence[Operation]) -> Future[list[Any]]:
        """Send these operations, all or none, at the next opportunity. Never blocks.

        The future returns what ``Session.multi`` would, or fails as it would, with ``.index`` counted
        in this group.

        :raises ConfigurationError: a path that ZooKeeper cannot use.
        """
        return self._submit_all([operations])[0]

    def submit_all(self, groups: Iterable[Sequence[Operation]]) -> list[Future[list[Any]]]:
        """As :meth:`submit` for each group; better packed, since all are known before the first is sent."""
        return self._submit_all(groups)

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything submitted so far, and meanwhile, is settled; whether it was, in ``timeout_s``."""
        deadline = monotonic() + timeout_s
        with self._lock:
            while self._unsettled:
                left_s = deadline - monotonic()
                if left_s <= 0:
                    return False
                self._settled.wait(left_s)
        return True

    # -- inside ------------------------------------------------------------------------------------

    def _submit_all(self, groups: Iterable[Sequence[Operation]]) -> list[Future[list[Any]]]:
        chroot_bytes = len(self._session.chroot.encode())
        made = [self._group(tuple(operations), chroot_bytes) for operations in groups]
        with self._lock:
            for group in made:
                if not group.future.done():
                    self._waiting.append(group)
                    self._unsettled += 1
        self._pump()
        return [group.future for group in made]

    def _group(self, operations: tuple[Operation, ...], chroot_bytes: int) -> _Group:
        for op in operations:  # here, where it fails its own group only, at the call
            validated_path(op.path, open_ended=isinstance(op, Create) and op.sequential)
        size = sum(_estimated_bytes(op) + chroot_bytes for op in operations)
        group = _Group(operations, size, Future())
        limit = self._session.max_request_bytes
        if not operations:
            group.future.set_result([])
        elif size > limit:
            what = f"a group of {len(operations)} operations"
            group.future.set_exception(TooLarge(what, size=size, limit=limit, path=operations[0].path))
        return group

    def _pump(self) -> None:
        # One thread sends at a time, or two batches could overtake each other; who comes meanwhile has it go round again. That also
        # keeps the stack flat when requests fail at once, as all do while there is no connection.
        with self._lock:
            self._pumps_wanted += 1
            if self._pumps_wanted > 1:
                return
        while True:
            self._send_what_may_go()
            with self._lock:
                if self._pumps_wanted == 1:
                    self._pumps_wanted = 0
                    return
                self._pumps_wanted = 1

    def _send_what_may_go(self) -> None:
        while True:
            with self._lock:
                batch = self._next_batch() if self._under_way < self._window else None
                if batch is None:
                    return
                self._under_way += 1
            try:
                answer = self._session.multi_async([op for group in batch.groups for op in group.operations])
            except LeaderqError as exc:
                answer = Future()
                answer.set_exception(exc)
            answer.add_done_callback(functools.partial(self._answered, batch))

    def _next_batch(self) -> _Batch | None:
        if self._retries:
            return self._retries.popleft()
        groups: list[_Group] = []
        count = size = 0
        while self._waiting:
            head = self._waiting[0]
            if groups and (count + len(head.operations) > self._max_ops or size + head.size > self._max_bytes):
                break
            groups.append(self._waiting.popleft())
            count += len(head.operations)
            size += head.size
        return _Batch(groups) if groups else None

    def _answered(self, batch: _Batch, answer: Future[list[Any]]) -> None:
        error = None if answer.cancelled() else answer.exception()
        if error is None and not answer.cancelled():
            results = iter(answer.result())
            outcomes = [(group, [next(results) for _ in group.operations]) for group in batch.groups]
            self._settle(batch, [functools.partial(group.future.set_result, result) for group, result in outcomes], [])
            return
        bad = None if isinstance(error, ConnectionLost) else _blamed(batch.groups, error)
        if error is None or bad is None:
            lost = error or ConnectionLost("the multi was given up: the outcome is unknown")
            self._settle(batch, [functools.partial(group.future.set_exception, lost) for group in batch.groups], [])
            return
        position, own_error = bad
        retries = list(_parts(batch, position))
        self._settle(batch, [functools.partial(batch.groups[position].future.set_exception, own_error)], retries)

    def _settle(self, batch: _Batch, outcomes: list[Callable[[], None]], retries: list[_Batch]) -> None:
        for outcome in outcomes:
            try:
                outcome()
            except InvalidStateError:  # cancelled by the caller: the group was sent all the same
                continue
        with self._lock:
            self._retries.extend(retries)
            self._under_way -= 1
            self._unsettled -= len(outcomes)
            if not self._unsettled:
                self._settled.notify_all()
        self._pump()


def _blamed(groups: list[_Group], error: BaseException | None) -> tuple[int, LeaderqError] | None:
    """Which group failed by itself, and its error with the index counted in it; ``None`` if no single one is to blame."""
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
