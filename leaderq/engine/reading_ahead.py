"""Reads the rows that are about to be claimed, and meanwhile those that are likely to be next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from leaderq.errors import ConnectionLost, LeaderqError
from leaderq.threads import primitives
from leaderq.zookeeper.reading import SizedReader

T = TypeVar("T")
_MOST = 250
_SLICE_S = 0.5


def result_of(answer: primitives.Future[T], is_stopped: Callable[[], bool]) -> T:
    """Wait for the answer; once ``is_stopped()``, raise ``ConnectionLost``: it may still come."""
    while True:
        try:
            return answer.result(_SLICE_S)
        except primitives.FutureTimeout:
            if is_stopped() and not answer.done():
                raise ConnectionLost("the queue is being closed") from None


class RowsAhead:
    """Rows by name, each as :meth:`SizedReader.read` returns it. Any thread may use it."""

    def __init__(self, reader: SizedReader, is_stopped: Callable[[], bool]) -> None:
        self.reader, self._is_stopped = reader, is_stopped
        self._known: dict[str, Any] = {}
        self._asked: list[str] = []
        self._answer: primitives.Future[list[Any]] | None = None

    def read(self, names: Sequence[str]) -> dict[str, Any]:
        """Return the rows of the first ``names``, as many as fit in one read. The rows that were
        read ahead among them are forgotten. Raises what the session raises.
        """
        if not set(names).isdisjoint(self._asked):
            self._take_in()
        rows = {name: self._known.pop(name) for name in names if name in self._known}
        if missing := [name for name in names if name not in rows]:
            found: list[Any] = result_of(self.reader.read(missing), self._is_stopped)
            rows.update(zip(missing, found, strict=False))
        return rows

    @property
    def room(self) -> int:
        """How many rows may be read ahead now."""
        if self._answer is not None and self._answer.done():
            self._take_in()
        if self._answer is not None or len(self._known) >= self.reader.most // 2:
            return 0
        return min(_MOST, self.reader.most)

    def begin(self, names: Sequence[str]) -> None:
        """Read these rows ahead, in the background. Errors of the session are not told."""
        if asked := [name for name in names if name not in self._known]:
            with suppress(LeaderqError):
                self._asked, self._answer = asked, self.reader.read(asked)

    def note(self, rows: dict[str, Any]) -> None:
        """Keep rows that were read by the way, as if they had been read ahead."""
        self._known.update(rows)

    def forget(self) -> None:
        """Forget all rows, because their names may belong to other items by now."""
        self._known, self._answer, self._asked = {}, None, []

    def _take_in(self) -> None:
        known, asked, answer = self._known, self._asked, self._answer
        self._answer, self._asked = None, []
        with suppress(LeaderqError):  # then they are read when they are needed
            if answer is not None:
                found: list[Any] = result_of(answer, self._is_stopped)
                known.update(zip(asked, found, strict=False))
