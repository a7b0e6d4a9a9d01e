"""Operations that belong together, all or none, and who hears what became of them (pure but for the futures)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from leaderq.errors import LeaderqError, TooLarge
from leaderq.zookeeper import Create, Operation, SetData
from leaderq.zookeeper.paths import validated_path

log = logging.getLogger(__name__)

_OP_BYTES = 96  # header, lengths, flags, version, ACL: an upper bound for all kinds of operation
MARGIN_BYTES = 4096
"""Bytes of a request that are left to the tally's own operation, the request's header, and errors of the estimate."""


class Group:
    """All or none of these. Whoever wants to know what became of them overrides :meth:`heard`.

    A slim object, since a queue makes one for every item: it has no lock; a tally touches it under its own.
    """

    __slots__ = ("_operations", "count", "is_alone", "is_begun", "is_counted", "is_withdrawn", "repairs", "size")

    def __init__(self, operations: Sequence[Operation], size: int) -> None:
        self._operations = operations
        self.count = len(operations)
        self.size = size
        """Bytes in a request, an upper bound."""
        self.repairs = 0
        self.is_begun = False
        """Whether it may have been sent."""
        self.is_withdrawn = False
        self.is_counted = False
        """Whether a tally counts it as unsettled."""
        self.is_alone = False
        """Whether it goes in a multi of its own: one that it shared failed, and nobody knows by whose fault."""

    @property
    def operations(self) -> Sequence[Operation]:
        """What it is; equal each time."""
        return self._operations

    def begin(self) -> bool:
        """It is about to be sent; ``False``: nobody wants that any more."""
        self.is_begun = True
        return not self.is_withdrawn

    def heard(self, results: list[Any] | None, error: LeaderqError | None) -> None:
        """What became of it, told once: its results (``None`` if the answer was lost), or why it was not applied.

        Called on the session's thread or a tally's; must not block.
        """

    def settle(self, results: list[Any] | None = None, error: LeaderqError | None = None) -> None:
        """Tell who waits; an error there must not keep the others from hearing."""
        try:
            self.heard(results, error)
        except Exception:
            log.exception("what should hear of the outcome of %r failed", self.operations)


class FutureGroup(Group):
    """A group whose outcome is a future's result: the results, or ``None`` if it was applied and the answer was lost."""

    __slots__ = ("future",)

    def __init__(self, operations: Sequence[Operation], size: int, withdraw: Callable[[Group], object]) -> None:
        super().__init__(operations, size)
        self.future: Future[list[Any] | None] = _Outcome(self, withdraw)

    def begin(self) -> bool:
        self.is_begun = self.future.running() or self.future.set_running_or_notify_cancel()
        return self.is_begun

    def heard(self, results: list[Any] | None, error: LeaderqError | None) -> None:
        try:
            if error is not None:
                self.future.set_exception(error)
            else:
                self.future.set_result(results)
        except InvalidStateError:  # whoever cancelled meanwhile hears nothing
            return


class _Outcome(Future[Any]):
    """Can be cancelled until it is sent; then the tally need not keep the group any more."""

    def __init__(self, group: Group, withdraw: Callable[[Group], object]) -> None:
        super().__init__()
        self._group = group
        self._withdraw = withdraw

    def cancel(self) -> bool:
        is_cancelled = super().cancel()
        if is_cancelled:
            self._withdraw(self._group)
        return is_cancelled


def estimated_bytes(operations: Sequence[Operation], chroot_bytes: int) -> int:
    """An upper bound of what these take in a request."""
    size = 0
    for op in operations:
        data = len(op.data) if isinstance(op, (Create, SetData)) else 0
        size += _OP_BYTES + len(op.path) * (1 if op.path.isascii() else 4) + data + chroot_bytes
    return size


def validated(operations: Sequence[Operation]) -> Sequence[Operation]:
    """These, if ZooKeeper can use their paths.

    :raises ConfigurationError: it cannot; better here, at the call, than in a multi that others share.
    """
    for op in operations:
        validated_path(op.path, open_ended=isinstance(op, Create) and op.sequential)
    return operations


def refusal(group: Group, limit: int) -> TooLarge | None:
    """Why this group can never be sent, if so."""
    if group.size <= limit:
        return None
    count = len(group.operations)
    what = "one operation" if count == 1 else f"a group of {count} operations"
    return TooLarge(what, size=group.size, limit=limit, path=group.operations[0].path)
