"""What is in the journal and not in memory: counted, waited for, and kept while the journal has not written it.

Not synchronised: guarded by the lock of the :class:`~leaderq.producing.stock.Stock`.

A request that the journal took and could then not write (a full disk) is *retained* here, unless its caller was told: it is
still pending. It goes to the journal again, the first of them alone until that one is stored. Meanwhile the state is
*blocked*.
"""

from __future__ import annotations

from collections import deque
from concurrent.futures import Future

from leaderq.clock import now_s
from leaderq.errors import JournalSlow
from leaderq.producing.entry import Entry
from leaderq.producing.memory import Memory
from leaderq.producing.spill import Spill, Stored

_PROBE_S = 0.25


class Unread:
    """See the module. ``count`` requests of an earlier producer are there at first."""

    def __init__(self, count: int, last_id: int) -> None:
        self.count = count
        """Requests that are not in memory: stored, being written, or retained."""
        self.waiting = 0
        """How many of these somebody waits for."""
        self.up_to = 0
        """The last id of a request that is, or was, in memory."""
        self.noted = last_id
        """The last id that is known to be stored; what is behind it must not be read yet."""
        self.is_read = False
        """Whether somebody reads the journal at this moment, without the lock."""
        self.acks: list[int] = []
        """Ids that are done with, to be told to the journal without the lock."""
        self._waiters: dict[int, Future[None]] = {}
        self._being_written: dict[Entry, None] = {}
        self._retained: deque[Entry] = deque()
        self._probe: Entry | None = None
        self._probe_at_s = 0.0

    @property
    def stored(self) -> int:
        """How many of them can be read."""
        return self.count - len(self._being_written) - len(self._retained)

    @property
    def is_held_up(self) -> bool:
        """Whether some are retained: nothing may come behind them before they are written."""
        return bool(self._retained) or self._probe is not None

    def add(self, entry: Entry) -> None:
        """The journal has taken it, and it is nowhere else."""
        self.count += 1
        self._being_written[entry] = None
        self.waiting += entry.waiter is not None

    def took_out(self, entry: Entry) -> Entry:
        """It is read, or lost; gives it, with whoever waits for it."""
        self.count -= 1
        if entry.waiter is None and entry.journal_id:
            entry.waiter = self._waiters.pop(entry.journal_id, None)
        self.waiting -= entry.waiter is not None
        return entry

    def take_acks(self) -> list[int]:
        """Those to be told to the journal now."""
        ids, self.acks = self.acks, []
        return ids

    def note(self, news: Stored, memory: Memory) -> bool:
        """What became of an append; ``True``: that request is lost, since its caller knows that it was not written."""
        entry = news.entry
        is_unread = entry in self._being_written
        self._being_written.pop(entry, None)
        was_probe = entry is self._probe
        if was_probe:
            self._probe = None
        if news.id is None:
            entry.forget_journal()
            if not is_unread or news.is_told:
                return is_unread
            (self._retained.appendleft if was_probe else self._retained.append)(entry)
            self._probe_at_s = now_s() + _PROBE_S
            return False
        self.noted = max(self.noted, news.id)
        entry.journal_id = news.id
        if not is_unread:
            self.up_to = max(self.up_to, news.id)
            if entry not in memory:
                self.acks.append(news.id)
        elif self.is_held_up and not was_probe:
            self.acks.append(news.id)
            entry.forget_journal()
            self._retained.append(entry)
        elif entry.waiter is not None:
            self._waiters[news.id] = entry.waiter
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
            entry = self._retained.popleft()
            self._being_written[entry] = None
            if is_first:
                self._probe, self._probe_at_s = entry, 0.0
                return

    def leave(self) -> tuple[list[Entry], list[Future[None]]]:
        """At the end: those that were never written, and who waits for the others."""
        left = list(self._retained)
        self._retained.clear()
        waiters = [*self._waiters.values(), *(entry.waiter for entry in self._being_written if entry.waiter is not None)]
        self._waiters.clear()
        return left, waiters
