"""One request on its way through a producer."""

from __future__ import annotations

import sys
from collections.abc import Hashable
from typing import Any

from leaderq.base.arguments import require_finished
from leaderq.errors import ConfigurationError
from leaderq.threads import primitives


class BufferedRequest:
    """One object for a request. Times are of ``clock.now_s``.

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
    key: Hashable = None
    deadline: float | None = None
    seq: int = 0
    attempts: int = 0
    run: list[Any] | None = None
    """Instead of one request: several in a row, of which nothing is known but their order. Until
    something is, they are one; ``size`` is that of all, and ``seq`` the number of the first."""
    parts: list[BufferedRequest] | None = None
    """What a run was split into."""

    def __init__(self, request: Any, size: int, since_s: float) -> None:
        self.request, self.size, self.since_s = request, size, since_s
        self.output = request
        """The record for the sink: the request, or with the context of a span."""

    @property
    def count(self) -> int:
        """How many requests this is."""
        return 1 if self.run is None else len(self.run)

    def split(self) -> list[BufferedRequest]:
        """Return the requests of a run, each by itself; the same whenever it is asked."""
        if self.run is None:
            return [self]
        if self.parts is None:
            parts = [BufferedRequest(one, measured(one), self.since_s) for one in self.run]
            for number, one in enumerate(parts):
                one.seq, one.attempts = self.seq + number, self.attempts
            self.parts = parts
        return self.parts

    def is_expired(self, now: float) -> bool:
        return self.deadline is not None and now >= self.deadline


def measured(request: Any) -> int:
    """Return roughly how many bytes a request takes: the bytes of ``bytes`` and ``str``, and of the
    parts of a container; for other objects only what Python says about the object itself.
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
