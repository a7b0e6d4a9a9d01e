"""Tells listeners of changes in order, one change at a time, on whichever thread announces."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from leaderq.plain import require_plain_function
from leaderq.threads import primitives

log = logging.getLogger(__name__)
T = TypeVar("T")


class Listeners(Generic[T]):
    """Calls each listener with each value, in the order in which the values were put.

    Guarantees: one call at a time, without a lock held. A listener that raises is logged, and the
    others are told; a ``KeyboardInterrupt`` is raised, where it came, after the last value.
    Not guaranteed: that ``announce`` has told everybody when it returns; it leaves its value to
    another thread, or to an outer call of this one, that is delivering.
    """

    def __init__(self) -> None:
        self._lock = primitives.Lock()
        self._listeners: tuple[Callable[[T], object], ...] = ()
        self._values: deque[T] = deque()
        self._calls: deque[tuple[Callable[[T], object], T]] = deque()  # of the value in hand
        self._delivering = False

    def add(self, listener: Callable[[T], object]) -> None:
        """Tell ``listener`` each value that is delivered from now on; once, if added twice.

        :raises NotAPlainFunction: calling it would do nothing.
        """
        require_plain_function(listener, "listener")
        with self._lock:
            if listener not in self._listeners:
                self._listeners = (*self._listeners, listener)

    def remove(self, listener: Callable[[T], object]) -> None:
        """Tell it nothing more, except for a call under way. An unknown listener is ignored."""
        with self._lock:
            self._listeners = tuple(one for one in self._listeners if one != listener)

    def announce(self, value: T) -> None:
        """Tell everyone, after the values that are being delivered."""
        self.put(value)
        self.deliver()

    def put(self, value: T) -> None:
        """Note a value for the next :meth:`deliver`. Calls nobody: a lock may be held."""
        with self._lock:
            self._values.append(value)

    def deliver(self) -> None:
        """Deliver what is noted, unless that is under way: then that call delivers it."""
        with self._lock:
            if self._delivering:
                return
            self._delivering = True
        interruption: BaseException | None = None
        try:
            while (call := self._next()) is not None:
                listener, value = call
                try:
                    listener(value)
                except (Exception, SystemExit):
                    log.exception("listener failed listener=%r value=%s", listener, value)
                except BaseException as error:  # noqa: BLE001 - raised after the rest
                    interruption = error
        except BaseException:  # an interrupt between two calls: the next deliver goes on from here
            with self._lock:
                self._delivering = False
            raise
        if interruption is not None:
            raise interruption

    def _next(self) -> tuple[Callable[[T], object], T] | None:
        with self._lock:
            while True:
                while self._calls:
                    call = self._calls.popleft()
                    if call[0] in self._listeners:
                        return call
                if not self._values:
                    self._delivering = False
                    return None
                value = self._values.popleft()
                self._calls.extend((listener, value) for listener in self._listeners)
