"""Abandoning a unit of work that is all or nothing by itself (``atomic = True``).

:class:`UnitAbandoned` is raised *inside* the career's thread, at whatever bytecode it has reached. It is a ``BaseException``, as
``KeyboardInterrupt`` is, so that an ``except Exception`` in the user's code does not swallow it. Python delivers it between two
bytecodes: a call that blocks in C (a long query, a ``time.sleep``) returns first; ``term.wait`` returns at once.

The race to close: the unit returns by itself in the moment in which it is abandoned. Entering, leaving and abandoning share a
lock; leaving takes an exception back that was raised but not delivered yet, so it never strikes the code after the unit.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable


class UnitAbandoned(BaseException):
    """Raised in a unit of work whose term has ended; let it pass, after undoing what the unit began."""


class AbandonableUnit:
    """Runs one unit at a time on one thread, and lets another thread abandon it, and with it all later ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: int | None = None
        self._abandoned = False

    def run(self, unit: Callable[[], object]) -> bool:
        """Call ``unit``; gives ``False`` if it was abandoned."""
        try:
            return self._run(unit)
        except UnitAbandoned:  # struck between the unit's end and the lock; there is never a second one
            self._leave()
            return False

    def abandon(self) -> None:
        """Raise :class:`UnitAbandoned` in the unit that runs now, if one does; no further one begins."""
        with self._lock:
            self._abandoned = True
            if self._thread is not None:
                _raise_in(self._thread, UnitAbandoned)
                self._thread = None  # once is enough: its clean-up must not be struck again

    def _run(self, unit: Callable[[], object]) -> bool:
        with self._lock:
            if self._abandoned:
                return False
            self._thread = threading.get_ident()
        try:
            unit()
        except UnitAbandoned:
            return False
        finally:
            self._leave()
        return True

    def _leave(self) -> None:
        with self._lock:
            self._thread = None
            _raise_in(threading.get_ident(), None)


def _raise_in(thread: int, exception: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), ctypes.py_object(exception) if exception is not None else None
    )
