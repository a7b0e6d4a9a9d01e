"""The requests in memory: those waiting for the process step, worker by worker, those waiting for
the sink, and those in hand.

Not synchronised: guarded by the lock of the :class:`~leaderq.producing.buffer.RequestBuffer`. All
that is here is unsettled, and was accepted in the order of ``seq``; within a key the order is never
changed. What is here is said by one dictionary: a request comes and goes by one statement.
Everything else is worked out from it again after an interrupt (:meth:`RequestMemory.rebuild`).
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Hashable, Iterable, Iterator
from enum import Enum
from typing import Any

from leaderq.base.arguments import require_finished
from leaderq.errors import ConfigurationError
from leaderq.threads import primitives


class RequestStep(Enum):
    """What a request in memory waits for."""

    TO_PROCESS = "a worker"
    PROCESSING = "its process step"
    READY = "the sink"
    SENDING = "the sink's answer"


_TO_PROCESS, _READY, _SENDING = RequestStep.TO_PROCESS, RequestStep.READY, RequestStep.SENDING


class BufferedRequest:
    """One object for a request in all its steps. Times are of ``clock.now_s``.

    Most requests need only what is given at first, so the rest are defaults of the class.
    """

    data: bytes | None = None
    """The request as bytes, on its way to the journal only, and only if that was needed before."""
    journal_id: int | None = None
    """Its id in the journal, if it was accepted there."""
    is_unwritable: bool = False
    """Whether it cannot be in the journal: it is too large, or has no bytes any more."""
    waiter: primitives.Future[Any] | None = None
    stored_at: object = None
    """The place where the sink has stored it, if it told."""
    seq: int = 0
    step: RequestStep = _READY
    attempts: int = 0

    def __init__(
        self, request: Any, key: Hashable, size: int, since_s: float, deadline: float | None = None
    ) -> None:
        self.request, self.key, self.size = request, key, size
        self.since_s, self.deadline = since_s, deadline
        self.output = request
        """The record for the sink: the request, until the process step has replaced it."""

    def is_expired(self, now: float) -> bool:
        return self.deadline is not None and now >= self.deadline


class RequestMemory:
    """See the module. Without workers requests wait for the sink at once."""

    def __init__(self, workers: int) -> None:
        self.unsettled: dict[int, BufferedRequest] = {}
        self.pushed = 0
        """How many ever came here, which is the number of the last."""
        self.to_process: list[deque[BufferedRequest]] = [deque() for _ in range(workers)]
        self.ready: deque[BufferedRequest] = deque()
        self.ready_bytes = 0
        self.bytes = 0
        self._first = 1

    def __len__(self) -> int:
        return len(self.unsettled)

    def __iter__(self) -> Iterator[BufferedRequest]:
        return iter(self.unsettled.values())

    def push(self, one: BufferedRequest) -> None:
        """Take one in, at the end."""
        if one.data is not None:  # memory would hold everything twice
            one.data = None
        one.seq = seq = self.pushed + 1
        if self.to_process:
            one.step = _TO_PROCESS
        self.unsettled[seq] = one  # it is here, by this statement
        self.pushed = seq
        self.bytes += one.size
        if one.step is _READY:  # as line_up, without a call
            self.ready.append(one)
            self.ready_bytes += one.size
        else:
            self.to_process[self.lane(one)].append(one)

    def line_up(self, one: BufferedRequest) -> None:
        if one.step is _READY:
            self.ready.append(one)
            self.ready_bytes += one.size
        elif one.step is _TO_PROCESS:
            self.to_process[self.lane(one)].append(one)

    def lane(self, one: BufferedRequest) -> int:
        """The number of the worker that it waits for."""
        return 0 if len(self.to_process) == 1 else hash(one.key) % len(self.to_process)

    def take_ready(self, most: int, most_bytes: int) -> list[BufferedRequest]:
        """Return those that have waited longest for the sink; in hand from now on."""
        taken: list[BufferedRequest] = []
        ready, size = self.ready, 0
        while ready and len(taken) < most:
            one = ready[0]
            size += one.size
            if taken and size > most_bytes:
                size -= one.size
                break
            one.step = _SENDING
            taken.append(one)
            ready.popleft()
        self.ready_bytes -= size
        return taken

    def settle(self, some: Iterable[BufferedRequest]) -> None:
        """These are pending no more; nothing happens for those that were not."""
        unsettled, size = self.unsettled, 0
        for one in some:
            if unsettled.pop(one.seq, None) is not None:
                size += one.size
        self.bytes -= size

    @property
    def oldest(self) -> BufferedRequest | None:
        # A dictionary looks for its first behind all that were deleted, again each time.
        unsettled = self.unsettled
        while self._first <= self.pushed:
            if (one := unsettled.get(self._first)) is not None:
                return one
            self._first += 1
        return None

    def withdraw_oldest(self) -> BufferedRequest | None:
        """Return the oldest that nobody has in hand, out of its line; ``None``: all are in hand."""
        waiting = [line for line in (self.ready, *self.to_process) if line]
        if not waiting:
            return None
        line = min(waiting, key=lambda one: one[0].seq)
        return self.take_ready(1, 0)[0] if line is self.ready else line.popleft()

    def rebuild(self, step: RequestStep | None = None, lane: int | None = None) -> None:
        """Work everything out again from who is here. Those in ``step`` (of one ``lane``) wait for
        that once more: whoever had them in hand was interrupted.
        """
        for one in self:
            if one.step is step and (lane is None or self.lane(one) == lane):
                one.step = _READY if step is _SENDING else _TO_PROCESS
        self.pushed = max(self.pushed, next(reversed(self.unsettled), 0))
        self.bytes, self.ready_bytes = sum(one.size for one in self), 0
        for line in (self.ready, *self.to_process):
            line.clear()
        for one in self:
            self.line_up(one)


def measured(request: Any) -> int:
    """Return roughly how many bytes a request takes: of ``bytes`` and ``str`` and the parts of a
    container; for other objects only what Python says of the object itself.
    """
    if type(request) is tuple or isinstance(request, (tuple, list)):
        size = 8 * len(request)
        for part in request:  # the usual request is a pair of bytes
            size += len(part) if type(part) is bytes else measured(part)
        return size
    if isinstance(request, (bytes, bytearray, str)):
        return len(request)
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
