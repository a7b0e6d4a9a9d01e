"""What is in the journal and not in memory: counted, waited for, and kept while it is unwritten.

Not synchronised: guarded by the lock of the :class:`~leaderq.producing.buffer.RequestBuffer`.

A request that the journal took and could then not write (a full disk) is *retained* here, unless
its caller was told: it is still pending. The journal then refuses all behind it too, so nothing is
ever stored before what was accepted before it; once it has told of each, all go there again, in
order. Meanwhile the state is *blocked*.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from itertools import islice
from typing import Any

from leaderq.clock import now_s
from leaderq.errors import JournalSlow
from leaderq.producing.memory import BufferedRequest, JournalCopy, RequestPlace
from leaderq.producing.spill import Spill, Written

_AGAIN_S = 0.25
_PIECE = 500


class JournalBacklog:
    """See the module. ``count`` requests of an earlier producer are there at first."""

    def __init__(self, count: int, last_id: int) -> None:
        self.count = count
        """Requests that are not in memory: stored, being written, or retained."""
        self.waiting = 0
        """How many of these have a future."""
        self.up_to = 0
        """The last id of a request that is, or was, in memory."""
        self.noted = last_id
        """The last id that is known to be stored; what is behind it must not be read yet."""
        self.is_read = False
        """Whether the journal is being read at this moment, without the lock."""
        self.acks: list[int] = []
        """Ids to acknowledge to the journal after releasing the lock."""
        self.is_refused = False
        """Whether the disk refused what came last, as far as is known."""
        self.again_at_s = 0.0
        """When what was refused may go to the journal again."""
        self._waiters: dict[int, Future[Any]] = {}
        # Those not stored, in order: first those refused, then those being written, then those that
        # are to go there again.
        self._unstored: deque[BufferedRequest] = deque()
        self._refused = self._being_written = 0

    @property
    def stored(self) -> int:
        """How many of them can be read."""
        return self.count - len(self._unstored)

    @property
    def is_written(self) -> bool:
        """Whether some are on their way to the disk, and it takes them."""
        return self._being_written > 0 and not self.is_held_up

    @property
    def is_held_up(self) -> bool:
        """Whether the disk refused some: nothing may come behind them before it has taken one."""
        return self.is_refused or len(self._unstored) > self._being_written

    def add(self, one: BufferedRequest) -> None:
        """The journal has taken it, and it is nowhere else."""
        one.place = RequestPlace.JOURNAL
        self.count += 1
        self._unstored.append(one)
        self._being_written += 1
        self.waiting += one.waiter is not None

    def take_out(self, one: BufferedRequest) -> BufferedRequest:
        """It is read, or lost; return it, with the future of whoever waits for it."""
        self.count -= 1
        if one.waiter is None and one.journal_id is not None:
            one.waiter = self._waiters.pop(one.journal_id, None)
        self.waiting -= one.waiter is not None
        return one

    def take_acks(self) -> list[int]:
        ids, self.acks = self.acks, []
        return ids

    def note(self, news: Written) -> bool:
        """Note what became of an append; return whether that request is lost, since its caller
        knows that it was not written."""
        one = news.request
        is_unread = one.place is RequestPlace.JOURNAL
        self._being_written -= is_unread
        if news.id is None:
            one.copy = JournalCopy.NONE
            if not news.is_told:
                self.is_refused, self.again_at_s = True, now_s() + _AGAIN_S
            if is_unread and news.is_told:
                del self._unstored[self._refused]
                return True
            self._refused += is_unread
            return False
        self.is_refused, self.noted = False, max(self.noted, news.id)
        one.journal_id, one.copy = news.id, JournalCopy.STORED
        if is_unread:
            self._unstored.popleft()
            if one.waiter is not None:
                self._waiters[news.id] = one.waiter
        else:
            self.up_to = max(self.up_to, news.id)
            if one.place is RequestPlace.SETTLED:
                self.acks.append(news.id)
        return False

    def begin_again(self) -> None:
        """The journal has told of all that it refused, and takes more."""
        self._refused = 0

    def write_retained(self, spill: Spill) -> bool:
        """Give all of them to the journal again, in order; return ``False`` if it is full.

        :raises JournalSlow: this has to go on later.
        """
        begin = self._refused + self._being_written
        for one in islice(self._unstored, begin, begin + _PIECE):
            if not spill.append(one, None):
                return False
            self._being_written += 1
        if len(self._unstored) > self._being_written:
            raise JournalSlow("what was refused is on its way to the journal; the rest follows")
        return True

    def leave(self) -> tuple[list[BufferedRequest], list[tuple[int | None, Future[Any]]]]:
        """At the end: return those that were never written, and of the others the ids with the
        futures of whoever waits."""
        left = [one for one in self._unstored if not one.is_journaled]
        waiters: list[tuple[int | None, Future[Any]]] = [*self._waiters.items()]
        waiters += [
            (None, one.waiter)
            for one in self._unstored
            if one.is_journaled and one.waiter is not None
        ]
        self._unstored.clear()
        self._waiters.clear()
        return left, waiters
