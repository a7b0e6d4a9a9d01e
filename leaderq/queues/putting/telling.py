"""Who hears of puts: listeners, on a thread of their own, so that one that is slow or puts something itself stops nobody."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from typing import Any

from leaderq.errors import LeaderqError

log = logging.getLogger(__name__)


class PutListener:
    """Hears what became of each put; override what is of interest. Called on one thread of the queue, in the order of the outcomes.

    An exception in here is logged, and changes nothing.
    """

    def put_completed(self, item: Any) -> None:
        """``item`` is stored."""

    def put_multi_completed(self, items: Sequence[Any]) -> None:
        """``items`` are stored, in one znode."""

    def put_failed(self, items: Sequence[Any], error: LeaderqError) -> None:
        """``items`` (one, or those of one znode) were not stored; if ``error`` is a ``ConnectionLost``, perhaps they were."""


class Teller:
    """Calls the listeners. The thread exists only from the first listener on."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._news: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_stopped = False
        self.listeners: tuple[PutListener, ...] = ()

    def add(self, listener: PutListener) -> None:
        """``listener`` hears of what is settled from now on; of nothing, once this was stopped."""
        with self._lock:
            self.listeners = (*self.listeners, listener)
            if self._thread is None and not self._is_stopped:
                self._thread = threading.Thread(target=self._run, name=f"leaderq-{self._name}-listeners", daemon=True)
                self._thread.start()

    def remove(self, listener: PutListener) -> None:
        """It hears nothing more, but for a call under way."""
        with self._lock:
            self.listeners = tuple(one for one in self.listeners if one is not listener)

    @property
    def is_here(self) -> bool:
        """Whether this is the thread of the listeners."""
        return self._thread is not None and threading.current_thread() is self._thread

    def tell(self, news: Callable[[PutListener], None], then: Callable[[], None]) -> None:
        """Call ``news`` with every listener, and then ``then``."""
        listeners = self.listeners
        self._news.put(lambda: self._call(listeners, news, then))

    def stop(self, timeout_s: float) -> None:
        """End the thread after what it was told; does not wait for itself."""
        with self._lock:
            thread, self._is_stopped = self._thread, True
        if thread is not None:
            self._news.put(None)
            if not self.is_here:
                thread.join(timeout_s)

    def _call(
        self, listeners: tuple[PutListener, ...], news: Callable[[PutListener], None], then: Callable[[], None]
    ) -> None:
        for listener in listeners:
            try:
                news(listener)
            except Exception:
                log.exception("put listener %r failed; the queue goes on", listener)
        then()

    def _run(self) -> None:
        while (job := self._news.get()) is not None:
            job()
