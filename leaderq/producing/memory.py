"""The requests in memory: those waiting for the process step, worker by worker, those waiting for
the sink, and those in hand.

Not synchronised: guarded by the lock of the :class:`~leaderq.producing.buffer.RequestBuffer`. All
that is here is unsettled, and was accepted in the order of ``seq``; within a key the order is never
changed.
"""

from __future__ import annotations

import sys
from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from leaderq.arguments import require_finished
from leaderq.errors import ConfigurationError
from leaderq.threads import primitives


class RequestPlace(Enum):
    """Where a request is."""

    OUTSIDE = "not accepted yet"
    MEMORY = "in memory, whether or not a copy of it is in the journal"
    JOURNAL = "in the journal only, or on its way there"
    SETTLED = "confirmed or given up"


class JournalCopy(Enum):
    """The state of the journal's copy of a request."""

    NONE = "nothing yet"
    WRITING = "it has taken it, and will tell its id"
    STORED = "it holds it, under a known id"
    NEVER = "nothing, and cannot: it is too large, or has no bytes any more"


@dataclass(slots=True, eq=False)
class BufferedRequest:
    """One object for a request in all its steps. Times are of ``clock.now_s``."""

    request: Any
    key: Hashable
    size: int
    since_s: float
    deadline: float | None = None
    data: bytes | None = None
    """The request as bytes, on its way to the journal only."""
    journal_id: int | None = None
    place: RequestPlace = RequestPlace.OUTSIDE
    copy: JournalCopy = JournalCopy.NONE
    waiter: primitives.Future[Any] | None = None
    output: Any = None
    """The record for the sink: the request, until the process step has replaced it."""
    stored_at: object = None
    """The place where the sink has stored it, if it told."""
    seq: int = 0
    attempts: int = 0

    @property
    def is_journaled(self) -> bool:
        return self.copy in (JournalCopy.WRITING, JournalCopy.STORED)

    def is_expired(self, now: float) -> bool:
        return self.deadline is not None and now >= self.deadline


class RequestMemory:
    """See the module. Without workers requests wait for the sink at once."""

    def __init__(self, workers: int, *, has_journal: bool) -> None:
        self.to_process: list[deque[BufferedRequest]] = [deque() for _ in range(workers)]
        self.ready: deque[BufferedRequest] = deque()
        self.ready_bytes = 0
        self.bytes = 0
        self.pushed = 0
        """How many ever came here, which is the number of the last."""
        self._unsettled: dict[BufferedRequest, None] = {}
        # Its first is found at once, however many were taken out before it.
        self._unwritten: OrderedDict[BufferedRequest, None] = OrderedDict()
        self._has_journal = has_journal

    def __len__(self) -> int:
        return len(self._unsettled)

    def __iter__(self) -> Iterator[BufferedRequest]:
        return iter(self._unsettled)

    def push(self, one: BufferedRequest) -> int | None:
        """Take one in, at the end; return the number of the worker it waits for, or ``None`` if it
        waits for the sink."""
        self.pushed += 1
        one.data = None  # else memory would hold everything twice
        one.output = one.request
        one.seq = self.pushed
        one.place = RequestPlace.MEMORY
        self._unsettled[one] = None
        self.bytes += one.size
        if self._has_journal and one.copy is JournalCopy.NONE:
            self._unwritten[one] = None
        if not self.to_process:
            self.ready.append(one)
            self.ready_bytes += one.size
            return None
        worker = 0 if len(self.to_process) == 1 else hash(one.key) % len(self.to_process)
        self.to_process[worker].append(one)
        return worker

    def make_ready(self, one: BufferedRequest) -> None:
        self.ready.append(one)
        self.ready_bytes += one.size

    def next_ready(self) -> BufferedRequest:
        """Return the one that has waited longest for the sink; in hand from now on."""
        one = self.ready.popleft()
        self.ready_bytes -= one.size
        return one

    def remove(self, one: BufferedRequest) -> bool:
        """Settle it; return ``False`` if it was settled before."""
        if one.place is not RequestPlace.MEMORY:
            return False
        del self._unsettled[one]
        one.place = RequestPlace.SETTLED
        self.bytes -= one.size
        if self._has_journal:
            self._unwritten.pop(one, None)
        return True

    def unsettled(self, up_to: int | None) -> tuple[int, int]:
        """Return how many of the first ``up_to`` (``None``: all) are here and stored in the journal
        too, and how many are here only."""
        some = [one for one in self if up_to is None or one.seq <= up_to]
        stored = sum(one.copy is JournalCopy.STORED for one in some)
        return stored, len(some) - stored

    @property
    def oldest(self) -> BufferedRequest | None:
        return next(iter(self._unsettled), None)

    @property
    def first_unwritten(self) -> BufferedRequest | None:
        """The oldest of which the journal may still get a copy."""
        line = self._unwritten
        while line:
            one = next(iter(line))
            if one.copy is JournalCopy.NONE:
                return one
            del line[one]
        return None

    def begin_again(self) -> None:
        """Requests that the journal refused may go there again, in order with the others."""
        self._unwritten = OrderedDict.fromkeys(one for one in self if one.copy is JournalCopy.NONE)

    def withdraw_oldest(self) -> BufferedRequest | None:
        """Take out the oldest that nobody has in hand; ``None``: all are in hand."""
        waiting = [line for line in (self.ready, *self.to_process) if line]
        if not waiting:
            return None
        line = min(waiting, key=lambda one: one[0].seq)
        one = self.next_ready() if line is self.ready else line.popleft()
        self.remove(one)
        return one


def measured(request: Any) -> int:
    """Return roughly how many bytes a request takes: of ``bytes`` and ``str`` and the parts of a
    container; for other objects only what Python says of the object itself.
    """
    if isinstance(request, (bytes, bytearray, str)):
        return len(request)
    if isinstance(request, (tuple, list)):
        size = 8 * len(request)
        for part in request:  # the usual request is a pair of bytes
            size += len(part) if type(part) is bytes else measured(part)
        return size
    if isinstance(request, dict):
        return sum(measured(key) + measured(value) for key, value in request.items())
    return sys.getsizeof(request)


def require_hash(key: Hashable) -> None:
    """Return if ``key`` can be told from others, before its request is counted anywhere.

    :raises ConfigurationError: it has no hash, or is a coroutine or the like.
    """
    require_finished(key, "key")
    try:
        hash(key)
    except TypeError as exc:
        raise ConfigurationError(
            f"key returned a {type(key).__name__} for a request, which has no hash; return a str, "
            "bytes, number or a tuple of these"
        ) from exc
