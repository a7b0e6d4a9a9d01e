"""Threads, locks, waits and futures: the one place where leaderq takes them from.

Ordinarily each name *is* the standard library's. A simulation replaces the attributes of this
module by its own, for the time of one simulated life; so they are looked up late, by attribute:
``primitives.Lock()``, never ``from leaderq.threads.primitives import Lock``, and never when a
module is imported or as the default of a parameter. ruff refuses the originals elsewhere in
``leaderq``.
"""

from __future__ import annotations

import ctypes
import sys
from concurrent.futures import CancelledError as CancelledError
from concurrent.futures import Executor as Executor
from concurrent.futures import Future as Future
from concurrent.futures import InvalidStateError as InvalidStateError
from concurrent.futures import ProcessPoolExecutor as ProcessPoolExecutor
from concurrent.futures import ThreadPoolExecutor as ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout  # not the built-in one on Python 3.10
from concurrent.futures import wait as wait_futures
from queue import Empty as Empty
from queue import Full as Full
from queue import Queue as Queue
from queue import SimpleQueue as SimpleQueue
from threading import TIMEOUT_MAX as TIMEOUT_MAX
from threading import Condition as Condition
from threading import Event as Event
from threading import Lock as Lock
from threading import RLock as RLock
from threading import Thread as Thread
from threading import current_thread as current_thread
from threading import get_ident as get_ident
from threading import local as local
from threading import main_thread as main_thread
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from selectors import BaseSelector


def raise_in(thread: int, error: type[BaseException]) -> None:
    """Raise ``error`` in the thread whose ident is ``thread``, between two of its bytecodes."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(error))


def take_raised(error: type[BaseException]) -> None:
    """Remove ``error`` if another thread has raised it in this thread and it has not arrived yet.

    To do so, this function raises ``error`` in its own thread once more, and catches it. Before
    Python 3.13 the interpreter checks at each call, in all threads, whether there is something to
    raise, until something has arrived. Taking ``error`` back by the C API would leave it checking
    for ever, which costs up to half the speed; and Python 3.11 with a debugger, or with anything
    else that traces, would stand still.
    """
    try:
        raise_in(get_ident(), error)
        while True:
            pass  # it arrives here
    except error:
        return


def frame_of(thread: int) -> FrameType | None:
    """The frame that the thread with this ident executes now; ``None`` if there is no such
    thread.
    """
    return sys._current_frames().get(thread)


def new_event_loop(selector: BaseSelector) -> AbstractEventLoop:
    """Make an event loop of asyncio, which is imported only in this call, because few programs need
    it.
    """
    from asyncio import SelectorEventLoop

    return SelectorEventLoop(selector)


__all__ = [
    "TIMEOUT_MAX",
    "CancelledError",
    "Condition",
    "Empty",
    "Event",
    "Executor",
    "Full",
    "Future",
    "FutureTimeout",
    "InvalidStateError",
    "Lock",
    "ProcessPoolExecutor",
    "Queue",
    "RLock",
    "SimpleQueue",
    "Thread",
    "ThreadPoolExecutor",
    "current_thread",
    "frame_of",
    "get_ident",
    "local",
    "main_thread",
    "new_event_loop",
    "raise_in",
    "take_raised",
    "wait_futures",
]
