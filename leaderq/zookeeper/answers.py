"""Futures for requests in flight: the bridge between kazoo's connection thread and whoever asked.

The result is set directly on the connection thread, so a waiting caller wakes without a detour; callbacks are handed to the
completion thread, since a callback must never hold up the connection. Late, repeated and cancelled replies are harmless.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from concurrent.futures import Future, InvalidStateError
from typing import Any, Generic, TypeVar

from leaderq.errors import LeaderqError

log = logging.getLogger(__name__)
T = TypeVar("T")
Dispatch = Callable[[Callable[[], object]], None]


class Answer(Future[T]):
    """A ``concurrent.futures.Future`` whose callbacks run on the completion thread of its session; they must not block
    it."""

    def __init__(self, dispatch: Dispatch) -> None:
        super().__init__()
        self._dispatch = dispatch

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        super().add_done_callback(lambda done: self._dispatch(functools.partial(fn, done)))

    def cancel(self) -> bool:
        """Stop caring about the answer. The request itself is not taken back: its outcome is unknown."""
        if self.cancelled():
            return True
        if not super().cancel():
            return False
        self.set_running_or_notify_cancel()  # wakes concurrent.futures.wait(), which a mere cancel() does not
        return True


class Reply(Generic[T]):
    """What kazoo holds while a request is in flight; it calls ``set`` or ``set_exception``. Neither ever raises:
    an exception here would end kazoo's connection thread."""

    __slots__ = ("_convert", "_translate", "future")

    def __init__(
        self, future: Future[T], convert: Callable[[Any], T], translate: Callable[[BaseException], LeaderqError]
    ) -> None:
        self.future = future
        self._convert = convert
        self._translate = translate

    def set(self, value: Any = None) -> None:
        try:
            result = self._convert(value)
        except Exception as exc:  # noqa: BLE001 - handed on to whoever asked
            self.set_exception(exc)
            return
        try:
            self.future.set_result(result)
        except InvalidStateError:
            log.debug("an answer came after nobody waited for it")

    def set_exception(self, exc: BaseException) -> None:
        try:
            self.future.set_exception(self._translate(exc))
        except InvalidStateError:
            log.debug("an error came after nobody waited for it: %s", type(exc).__name__)


def failed_future(exc: BaseException) -> Future[Any]:
    """A future that has failed already."""
    future: Future[Any] = Future()
    future.set_exception(exc)
    return future


def finished_future(result: T) -> Future[T]:
    """A future that has succeeded already."""
    future: Future[T] = Future()
    future.set_result(result)
    return future
