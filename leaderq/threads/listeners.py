"""A registry of listeners, and the two ways in which it calls them."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from types import UnionType
from typing import Any, Generic, TypeVar

from leaderq.base.arguments import identity_of, plain_function, require, unless
from leaderq.errors import UnitAbandoned
from leaderq.threads import primitives
from leaderq.threads.service import Service

log = logging.getLogger(__name__)
T = TypeVar("T")

_Listener = Callable[[Any], object]
_Key = tuple[Any, Hashable]
"""The class of the values for a listener, and what tells it apart from others."""


def is_from_outside(error: BaseException) -> bool:
    """Whether ``error``, caught on this thread, says nothing about the code that it left: Ctrl-C,
    which only the main thread gets, or the abandonment of a unit.
    """
    if isinstance(error, KeyboardInterrupt):
        return primitives.current_thread() is primitives.main_thread()
    return isinstance(error, UnitAbandoned)


class Listeners(Generic[T]):
    """Calls each listener with each value. There are two ways:

    * :meth:`call` tells everybody before it returns, on its own thread. Calls of several threads
      may overlap, and a listener may cause another call.
    * :meth:`announce` (:meth:`put` and :meth:`deliver`) tells the values in the order in which they
      were put, one call at a time. A caller that comes while another thread delivers, or that is
      itself a listener, leaves its value to the delivery under way and goes on. So a listener that
      blocks holds up the other listeners, and that thread.

    ``name``: how the log calls the registry. ``has_thread``: a thread of this name delivers, from
    the first ``add`` until :meth:`stop`; ``announce`` only wakes it. ``most``: how many puts may
    wait for their delivery; further values are dropped, and counted in ``untold``.
    ``on_told(values)`` is called with the values of one ``put`` or ``announce`` when all listeners
    were told of them, on the same thread.

    Guarantees: no lock is held while a listener runs. One that raises is logged, and the others are
    told. What strikes a listener from outside (Ctrl-C, the abandonment of a unit) is raised on the
    same thread after the last listener; a registry with a thread of its own logs it instead.
    ``put``, ``announce`` and ``deliver`` wait for no lock, so a finalizer or a signal handler may
    call them. Not guaranteed: that ``announce`` has told everybody when it returns.
    """

    def __init__(
        self,
        name: str = "",
        *,
        has_thread: bool = False,
        most: float = math.inf,
        on_told: Callable[[Sequence[T]], object] | None = None,
    ) -> None:
        self.untold = 0
        self._name = name
        self._most = most
        self._on_told = on_told
        self._lock = primitives.Lock()  # of those who add and remove
        self._listeners: dict[_Key, _Listener] = {}  # replaced by each change
        self._values: deque[tuple[T, ...]] = deque()
        # The two below belong to whoever holds the second lock, for which nobody waits.
        self._calls: deque[tuple[_Key | None, Any]] = deque()  # None: of ``on_told``
        self._delivering = primitives.Lock()
        self._service = Service(name, self._serve) if has_thread else None

    def __bool__(self) -> bool:
        """Whether anybody listens."""
        return bool(self._listeners)

    @property
    def is_current(self) -> bool:
        """Whether the caller is the registry's own thread."""
        return self._service is not None and self._service.is_current

    def add(self, listener: _Listener, kind: type = object) -> None:
        """Call ``listener`` with each value of class ``kind`` that is delivered from now on. Adding
        it twice for the same ``kind`` changes nothing.

        :raises ConfigurationError: ``listener`` is not a plain function, or ``kind`` not a class.
        """
        is_kind = isinstance(kind, type | UnionType)
        require(
            plain_function("listener", listener),
            unless(is_kind, f"kind is {kind!r:.100}: give the class of what to listen for"),
        )
        with self._lock:
            self._listeners = {**self._listeners, (kind, identity_of(listener)): listener}
        if self._service is not None:
            self._service.start()

    def remove(self, listener: _Listener, kind: type = object) -> None:
        """Stop calling ``listener`` for ``kind``; a call under way goes on. An unknown listener is
        ignored.
        """
        key = (kind, identity_of(listener))
        with self._lock:
            self._listeners = {one: each for one, each in self._listeners.items() if one != key}

    def call(self, value: T) -> None:
        """Call every listener with ``value`` now, on this thread."""
        struck = None
        for (kind, _), listener in self._listeners.items():
            struck = self._tell(kind, listener, value) or struck
        if struck is not None:
            raise struck

    def announce(self, *values: T) -> None:
        """Call every listener with each value, after the values that were put before."""
        self.put(*values)
        if self._service is None:
            self.deliver()
        else:
            self._service.wake()

    def put(self, *values: T, is_owed: bool = False) -> None:
        """Keep values for the next :meth:`deliver`. If too many wait, drop them, unless
        ``is_owed``. Calls no listener, so the caller may hold a lock.
        """
        if is_owed or len(self._values) < self._most:
            self._values.append(values)
        else:
            self.untold += len(values)

    def deliver(self) -> None:
        """Call the listeners with all values that were put. If another thread is delivering, or a
        listener calls this, the delivery under way tells these values, too.
        """
        struck = None
        while (self._calls or self._values) and self._delivering.acquire(blocking=False):
            try:  # after an interrupt between two calls, the next deliver goes on from there
                while (call := self._next()) is not None:
                    struck = self._tell(*call) or struck
            finally:
                self._delivering.release()
        if struck is not None:
            raise struck

    def stop(self, timeout_s: float) -> bool:
        """End the thread after it has delivered what was put; return whether it ended within
        ``timeout_s`` seconds. Without a thread, return ``True``.
        """
        return self._service is None or self._service.stop(timeout_s)

    def _serve(self, service: Service) -> None:
        while service.wait():
            self.deliver()
        self.deliver()

    def _next(self) -> tuple[Any, _Listener, Any] | None:
        """The kind, the listener and the value of the next call; ``None`` if nobody is left to
        tell.
        """
        while self._calls or self._values:
            if not self._calls:
                values = self._values.popleft()
                self._calls.extend((key, value) for value in values for key in self._listeners)
                if self._on_told is not None:
                    self._calls.append((None, values))
                continue
            key, value = self._calls.popleft()
            listener = self._on_told if key is None else self._listeners.get(key)
            if listener is not None:
                return object if key is None else key[0], listener, value
        return None

    def _tell(self, kind: Any, listener: _Listener, value: Any) -> BaseException | None:
        """Call the listener with ``value`` if that is of its kind; return the exception that struck
        it from outside, or ``None``.
        """
        try:
            if isinstance(value, kind):
                listener(value)
        except BaseException as error:  # SystemExit too: this may be a thread that others need
            if is_from_outside(error) and self._service is None:
                return error
            text = "listener failed of=%s listener=%r value=%.200s"
            log.exception(text, self._name, listener, value)
        return None
