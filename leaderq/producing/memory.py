"""The requests in memory: those waiting for the process step, lane by lane, those waiting for the sink, and those in
hand.

Not synchronised: guarded by the lock of the :class:`~leaderq.producing.stock.Stock`. All that is here is unsettled, and
was accepted in the order of ``seq``; within a key the order is never changed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from leaderq.producing.entry import Entry


class Memory:
    """See the module. Without lanes (``lanes=0``) there is no process step, and requests wait for the sink at once."""

    def __init__(self, lanes: int) -> None:
        self.lanes: list[deque[Entry]] = [deque() for _ in range(lanes)]
        self.ready: deque[Entry] = deque()
        self.ready_bytes = 0
        self._unsettled: dict[Entry, None] = {}
        self.bytes = 0
        self.pushed = 0
        """How many ever came here, and the number of the last."""

    def __len__(self) -> int:
        return len(self._unsettled)

    def push(self, entry: Entry) -> int | None:
        """Take one in, at the end; gives the lane it waits in, or ``None`` if it waits for the sink."""
        self.pushed += 1
        entry.data = None  # else memory would hold everything twice
        entry.seq = self.pushed
        self._unsettled[entry] = None
        self.bytes += entry.size
        if not self.lanes:
            self.make_ready(entry)
            return None
        lane = 0 if len(self.lanes) == 1 else hash(entry.key) % len(self.lanes)
        self.lanes[lane].append(entry)
        return lane

    def make_ready(self, entry: Entry) -> None:
        """It waits for the sink now."""
        self.ready.append(entry)
        self.ready_bytes += entry.size

    def next_ready(self) -> Entry:
        """The one that has waited longest for the sink; in hand from now on."""
        entry = self.ready.popleft()
        self.ready_bytes -= entry.size
        return entry

    def remove(self, entry: Entry) -> bool:
        """It is settled; ``False``: it was before."""
        if entry not in self._unsettled:
            return False
        del self._unsettled[entry]
        self.bytes -= entry.size
        return True

    def __contains__(self, entry: Entry) -> bool:
        return entry in self._unsettled

    def __iter__(self) -> Iterator[Entry]:
        """All, the oldest first."""
        return iter(self._unsettled)

    @property
    def oldest(self) -> Entry | None:
        """The one that was accepted first."""
        return next(iter(self._unsettled), None)

    def withdraw_oldest(self) -> Entry | None:
        """Take out the oldest that nobody has in hand; ``None``: all are in hand."""
        waiting = [line[0] for line in (self.ready, *self.lanes) if line]
        if not waiting:
            return None
        entry = min(waiting, key=lambda first: first.seq)
        self.withdraw(entry)
        return entry

    def withdraw(self, entry: Entry) -> bool:
        """Take out one that is first in its line; ``False``: it is not, so somebody has it in hand."""
        for line in (self.ready, *self.lanes):
            if line and line[0] is entry:
                if line is self.ready:
                    self.next_ready()
                else:
                    line.popleft()
                return self.remove(entry)
        return False

    def unwritten(self) -> Iterable[Entry]:
        """Those that are not in the journal, the oldest first."""
        return [entry for entry in self._unsettled if entry.journal_id is None]
