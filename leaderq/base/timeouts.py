"""One convention of time-outs: ``timeout_s`` is seconds, 0 does not wait, ``None`` is for ever."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from leaderq.base import clock
from leaderq.base.arguments import MAX_S, require, timeout

AS_SET: Final = -1.0
"""The default of a ``timeout_s``: the one that the object was made with."""
_SELDOM_S: Final = 10.0


class Deadline:
    """The end of a wait that begins now and lasts ``timeout_s`` seconds; ``None``, or more than a
    century, is for ever, and NaN does not wait.
    """

    __slots__ = ("_end_s", "timeout_s")

    def __init__(self, timeout_s: float | None) -> None:
        self.timeout_s = timeout_s
        self._end_s = None
        if timeout_s is not None and not timeout_s > MAX_S:  # NaN is not
            self._end_s = clock.now_s() + max(0.0, timeout_s)

    @classmethod
    def asked(cls, timeout_s: float | None, usual_s: float | None) -> Deadline:
        """The end of a wait of ``timeout_s`` seconds, or of ``usual_s`` if that is ``AS_SET``.

        :raises ConfigurationError: ``timeout_s`` is not a time-out.
        """
        if timeout_s is AS_SET:
            return cls(usual_s)
        require(timeout("timeout_s", timeout_s))
        return cls(timeout_s)

    @property
    def remaining_s(self) -> float | None:
        """Seconds left, at least 0; ``None`` without an end."""
        return None if self._end_s is None else max(0.0, self._end_s - clock.now_s())

    def left_s(self, most_s: float) -> float:
        """Seconds left, at least 0 and at most ``most_s``."""
        left_s = self.remaining_s
        return most_s if left_s is None else min(left_s, most_s)

    @property
    def is_over(self) -> bool:
        """Whether no time is left."""
        return self._end_s is not None and clock.now_s() >= self._end_s


class Seldom:
    """Says yes once in ten seconds to each kind of thing: for what would fill the log if it were
    said each time.
    """

    def __init__(self) -> None:
        self._next_s: dict[Hashable, float] = {}

    def is_time(self, kind: Hashable = None) -> bool:
        now = clock.now_s()
        if now < self._next_s.get(kind, 0.0):
            return False
        self._next_s[kind] = now + _SELDOM_S
        return True
