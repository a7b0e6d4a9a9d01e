"""What is in the journal and not in memory: counted, waited for, and kept while it is unwritten.

Not synchronised: guarded by the lock of the :class:`~leaderq.producing.buffer.RequestBuffer`.

A request that the journal took and could then not write (a full disk) is *retained* here, unless
its caller was told: it is still pending. It goes to the journal again, the first of them alone
until that one is stored. Meanwhile the state is *blocked*.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future
from typing import Any

from leaderq.clock import now_s
from leaderq.errors import JournalSlow
from leaderq.producing.memory import BufferedRequest, JournalCopy, RequestPlace
from leaderq.producing.spill import Piece, Spill, Written

_PROBE_S = 0.25


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
        self._waiters: dict[int, Future[Any]] = {}
        self._being_written: dict[BufferedRequest, None] = {}
        self._retained: deque[BufferedRequest] = deque()
        self._struck: set[int] = set()
        self._probe: BufferedRequest | None = None
        self._probe_at_s = 0.0

    @property
    def stored(self) -> int:
        """How many of them can be read."""
        return self.count - len(self._being_written) - len(self._retained)

    @property
    def is_written(self) -> bool:
        """Whether some are on their way to the disk, and it takes them."""
        return bool(self._being_written) and not self.is_held_up

    @property
    def is_held_up(self) -> bool:
        """Whether some are retained: nothing may come behind them before they are written."""
        return bool(self._retained) or self._probe is not None

    def add(self, one: BufferedRequest) -> None:
        """The journal has taken it, and it is nowhere else."""
        one.place = RequestPlace.JOURNAL
        self.count += 1
        self._being_written[one] = None
        self.waiting += one.waiter is not None

    def take_out(self, one: BufferedRequest) -> BufferedRequest:
        """It is read, or lost; return it, with the future of whoever waits for it."""
        self.count -= 1
        if one.waiter is None and one.journal_id is not None:
            one.waiter = self._waiters.pop(one.journal_id, None)
        self.waiting -= one.waiter is not None
        return one

    def read(self, piece: Piece) -> list[BufferedRequest]:
        """Note up to where was read; return what is to come into memory of it. Not what was struck
        out: its acknowledgement may have been on its way to the journal meanwhile."""
        self.up_to = max(self.up_to, piece.up_to)
        unread = [one for one in piece.requests if one.journal_id not in self._struck]
        self._struck = {number for number in self._struck if number > self.up_to}
        return unread

    def take_acks(self) -> list[int]:
        """Return the ids to acknowledge to the journal now."""
        ids, self.acks = self.acks, []
        return ids

    def note(self, news: Written) -> bool:
        """Note what became of an append; return whether that request is lost, since its caller
        knows that it was not written."""
        one = news.request
        is_unread = one in self._being_written
        self._being_written.pop(one, None)
        was_probe = one is self._probe
        if was_probe:
            self._probe = None
        if news.id is None:
            one.copy = JournalCopy.NEVER
            if not is_unread or news.is_told:
                return is_unread
            (self._retained.appendleft if was_probe else self._retained.append)(one)
            self._probe_at_s = now_s() + _PROBE_S
            return False
        self.noted = max(self.noted, news.id)
        one.journal_id, one.copy = news.id, JournalCopy.STORED
        if not is_unread:
            self.up_to = max(self.up_to, news.id)
            if one.place is RequestPlace.SETTLED:
                self.acks.append(news.id)
        elif self.is_held_up and not was_probe:
            self.acks.append(news.id)
            self._struck.add(news.id)
            one.journal_id, one.copy = None, JournalCopy.NEVER
            self._retained.append(one)
        elif one.waiter is not None:
            self._waiters[news.id] = one.waiter
        return False

    def write_retained(self, spill: Spill) -> None:
        """Try the first of them again, or, once that was stored, all."""
        if self._probe is not None or now_s() < self._probe_at_s:
            return
        is_first = self._probe_at_s > 0
        while self._retained:
            try:
                if not spill.append(self._retained[0], None):
                    return
            except JournalSlow:  # soon again
                return
            one = self._retained.popleft()
            self._being_written[one] = None
            if is_first:
                self._probe, self._probe_at_s = one, 0.0
                return

    def leave(self) -> tuple[list[BufferedRequest], list[tuple[int | None, Future[Any]]]]:
        """At the end: return those that were never written, and of the others the ids with the
        futures of whoever waits."""
        left = list(self._retained)
        self._retained.clear()
        waiters: list[tuple[int | None, Future[Any]]] = [*self._waiters.items()]
        waiters += [(None, one.waiter) for one in self._being_written if one.waiter is not None]
        self._waiters.clear()
        return left, waiters
