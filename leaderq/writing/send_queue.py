"""The groups of a writer, from their submission to their outcome: what is sent next, and what
becomes of what failed (pure). :class:`~leaderq.writing.writer.SequencedWriter` calls it under its
lock.

A group waits in ``waiting``, is sent in a batch of ``flight``, and is done; or it comes back:

* a batch that was *certainly* not applied is undone, its groups wait again, at the front, and may
  get another number;
* a *doubtful* one (sent without an answer) is kept whole in ``again`` until the writer has been
  read: applied, it is done; not applied, it is sent again unchanged, under its number, so that
  whichever copy reaches the servers first is the only one applied.

A server keeps its last 500 transactions in memory, and of each value in a multi three copies. So a
multi larger than ``max_bytes`` is followed by *small* ones, of the writer's own operation only, one
for each further ``max_bytes``: they push large ones out.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable

from leaderq.errors import ZooKeeperError
from leaderq.writing.groups import MultiStatus, OperationGroup, PackedMulti, packed

RENEW_AT = 1 << 30
"""The number from which on the guard is made again: a version has 31 bits."""
_PACE = 16
"""With two multis or more under way, each further one must have that many groups for each of them,
or be large: small batches gather while the servers are busy.
"""
_LARGE_BYTES = 4096
_Batches = list[PackedMulti]


class SendQueue:
    """See the module."""

    def __init__(
        self, *, max_ops: int, max_bytes: int, window: int, window_bytes: float = math.inf
    ) -> None:
        self.waiting: deque[OperationGroup] = deque()
        self.flight: deque[PackedMulti] = deque()
        self.again: deque[PackedMulti] = deque()
        self.number = 0
        """Of the next new batch."""
        self.is_halted = True
        """Nothing is sent: not open yet, or in trouble."""
        self._max_ops = max_ops
        self._max_bytes = max_bytes
        self._window = window
        self._window_bytes = window_bytes
        self._small_due = 0
        self._under_way = self._bytes = 0  # of the flight: those with groups, and all

    @property
    def may_send(self) -> bool:
        """Whether :meth:`next_batch` returns anything; if not, an answer goes on with it."""
        if self.is_halted:
            return False
        under_way = self._under_way
        is_full = under_way >= self._window or (under_way > 0 and self._bytes >= self._window_bytes)
        if self.again:
            return not is_full
        if self.number >= RENEW_AT:
            return False
        if self._small_due:
            return True
        waiting = self.waiting
        if is_full or not waiting:
            return False
        return (
            under_way <= 1 or len(waiting) >= _PACE * under_way or waiting[-1].size >= _LARGE_BYTES
        )

    @property
    def needs_renewal(self) -> bool:
        """Whether the guard has to be made again before anything new is sent, and may be now."""
        return not (self.number < RENEW_AT or self.is_halted or self.flight or self.again)

    def next_batch(self) -> PackedMulti | None:
        if not self.may_send:
            return None
        if self.again:
            batch = self.again.popleft()
        else:
            groups: list[OperationGroup] = []
            if self._small_due:
                self._small_due -= 1
            else:
                groups = packed(self.waiting, self._max_ops, self._max_bytes)
                if not groups:
                    return None
            batch = PackedMulti(self.number, groups)
            self._small_due += batch.size // self._max_bytes
            self.number += 1
        batch.status = batch.error = None
        self.flight.append(batch)
        self._under_way += bool(batch.groups)
        self._bytes += batch.size
        return batch

    def take_applied(self) -> list[PackedMulti]:
        """The applied batches at the head of the flight; any other answer halts the line."""
        done: list[PackedMulti] = []
        flight = self.flight
        while flight and flight[0].status is MultiStatus.APPLIED:
            done.append(batch := flight.popleft())
            self._under_way -= bool(batch.groups)
            self._bytes -= batch.size
        return done

    def take_failed(self) -> list[PackedMulti]:
        """All that is under way, once halted and answered; else nothing yet."""
        if not self.is_halted or any(batch.status is None for batch in self.flight):
            return []
        return self._landed()

    def blame(self, failed: list[PackedMulti]) -> PackedMulti | None:
        """The batch that ZooKeeper refused by its content, if that is what happened. All that was
        under way waits again then, for none of it was applied: what follows a refused one needs a
        version that the writer did not come to.
        """
        first = failed[0]
        # An operation of a group was refused: so the guard stood at its number, and no former try
        # was applied.
        was_examined = isinstance(first.error, ZooKeeperError) and bool(first.error.index)
        if (
            first.status is not MultiStatus.REFUSED
            or (first.is_doubtful and not was_examined)
            or any(one.status is MultiStatus.UNKNOWN for one in failed)
        ):
            return None
        self._undo([*failed, *self.again])
        self.again.clear()
        return first

    def set_aside(self, failed: list[PackedMulti]) -> None:
        """Keep all up to the last doubtful one until the writer is read; all behind waits again."""
        batches = [*failed, *self.again]
        keep = 1 + max(
            (position for position, batch in enumerate(batches) if batch.is_doubtful), default=-1
        )
        self.again = deque(batches[:keep])
        self._undo(batches[keep:])

    def reconcile(self, version: int, *, is_new: bool) -> tuple[_Batches, _Batches]:
        """The writer was read: it stands at ``version``; ``is_new``: made again, with a new count.
        Returns the batches that were applied, and those of which nobody can know it.
        """
        batches = list(self.again)
        self.again.clear()
        left = [batch for batch in batches if batch.number >= version]
        is_off = bool(left) and left[0].number > version
        # somebody else wrote
        is_foreign = any(batch.number < version and not batch.is_doubtful for batch in batches)
        if is_new or is_off or is_foreign:
            lost = [batch for batch in batches if batch.is_doubtful]
            self._undo([batch for batch in batches if not batch.is_doubtful])
            self.number = version
            return [], lost
        self.again.extend(left)
        self.number = left[-1].number + 1 if left else version
        return [batch for batch in batches if batch.number < version], []

    def drop(self, group: OperationGroup) -> bool:
        """It is not to be sent any more; whether it was waiting."""
        try:
            self.waiting.remove(group)
        except ValueError:
            return False
        return True

    def empty(self) -> tuple[list[PackedMulti], list[OperationGroup]]:
        """Give up everything: the batches sent at some time, and the groups that were not."""
        batches, groups = [*self._landed(), *self.again], list(self.waiting)
        self.again.clear()
        self.waiting.clear()
        self.is_halted = True
        return batches, groups

    def _landed(self) -> list[PackedMulti]:
        """All that was under way; nothing is any more."""
        batches = list(self.flight)
        self.flight.clear()
        self._under_way = self._bytes = 0
        return batches

    def _undo(self, batches: Iterable[PackedMulti]) -> None:
        batches = list(batches)
        if not batches:
            return
        self.waiting.extendleft(reversed([group for batch in batches for group in batch.groups]))
        self.number = batches[0].number
