"""Saving off the drain thread, which goes on reading meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue


class BackgroundSaving:
    """A :class:`~leaderq.kafka.clients.drain.Saving` that a :class:`Background` carries out."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._finished = threading.Event()
        self._error: BaseException | None = None

    def done(self, wait_s: float) -> bool:
        """Whether the work has returned; raises what it raised."""
        if not self._finished.is_set() and not self._finished.wait(wait_s):
            return False
        if self._error is not None:
            raise self._error
        return True

    def carry_out(self) -> None:
        """Do the work, on the background's thread."""
        try:
            self._work()
        except BaseException as exc:  # noqa: BLE001  (raised to whoever waits for it)
            self._error = exc
        self._finished.set()


class Background:
    """One thread that carries out one piece of work after the other; it begins with the first, and
    ends with :meth:`close`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: SimpleQueue[BackgroundSaving | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def save(self, work: Callable[[], None]) -> BackgroundSaving:
        """Begin ``work``; what is given tells when it has returned."""
        saving = BackgroundSaving(work)
        self._queue.put(saving)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, args=(self._queue,), name=self._name, daemon=True)
            self._thread.start()
        return saving

    def close(self) -> None:
        """Let the thread end once it has done what it was given; does not wait for that."""
        if self._thread is not None:
            self._queue.put(None)
            self._queue, self._thread = SimpleQueue(), None

    @staticmethod
    def _run(queue: SimpleQueue[BackgroundSaving | None]) -> None:
        while (saving := queue.get()) is not None:
            saving.carry_out()
