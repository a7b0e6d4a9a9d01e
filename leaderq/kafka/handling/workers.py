"""Threads that work on several partitions at once, while one career thread waits for all of them.

The career thread may be struck by an exception at any instruction (``atomic`` careers,
:mod:`leaderq.running.stages`), so it shares no lock with the workers: it puts one ticket into a
``SimpleQueue`` and waits on another, single C calls both. The worker that takes a ticket passes one
on if tasks are left. Struck while it waits, :meth:`PartitionWorkers.run` begins no further task and
still waits for those begun: the user's code must not go on behind the back of ``handOver``. A
daemon thread that hangs in the user's code does not keep the process alive.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

_SLICE_S = 0.2  # how late an exception raised in the waiting thread is delivered
_CLOSE_S = 5.0


@dataclass
class TaskOutcome:
    """How a task ended: with a value or with an error of any kind, if it began at all."""

    began: bool = False
    value: Any = None
    error: BaseException | None = None


class PartitionWorkers:
    """Up to ``count`` threads, made when first needed. One :meth:`run` at a time."""

    def __init__(self, count: int, name: str) -> None:
        self._count = count
        self._name = name
        self._tickets: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    def run(
        self, tasks: Sequence[Callable[[], Any]], may_begin: Callable[[], bool]
    ) -> list[TaskOutcome]:
        """Run the tasks; ``may_begin`` is asked before each. Their outcomes, in the same order."""
        job = _Job(tasks, may_begin, self._tickets)
        while len(self._threads) < min(self._count, len(tasks)):
            name = f"{self._name}-{len(self._threads)}"
            self._threads.append(
                threading.Thread(target=_work, args=(self._tickets,), name=name, daemon=True)
            )
            self._threads[-1].start()
        try:
            self._tickets.put(job)
            job.wait()
        except BaseException:
            job.is_closed = True
            # in case the first was not put: somebody must find the job closed
            self._tickets.put(job)
            job.wait()
            raise
        return job.outcomes

    def close(self) -> None:
        """End the threads; one that hangs is left alone after 5 s. May be called twice."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._tickets.put(None)
        for thread in threads:
            thread.join(_CLOSE_S)
        self._tickets = SimpleQueue()


def _work(tickets: SimpleQueue[_Job | None]) -> None:
    while (job := tickets.get()) is not None:
        job.help()


class _Job:
    """Tasks given out one by one. The lock is the workers' own."""

    def __init__(
        self,
        tasks: Sequence[Callable[[], Any]],
        may_begin: Callable[[], bool],
        tickets: SimpleQueue[_Job | None],
    ) -> None:
        self.outcomes: list[TaskOutcome] = [TaskOutcome() for _ in tasks]
        self.is_closed = False
        self._tasks = tasks
        self._may_begin = may_begin
        self._tickets = tickets
        self._lock = threading.Lock()
        self._next = 0
        self._running = 0
        self._over: SimpleQueue[bool] = SimpleQueue()

    def wait(self) -> None:
        """Until nothing of it runs, and nothing will."""
        while True:
            try:
                self._over.get(timeout=_SLICE_S)
                return
            except Empty:
                continue

    def help(self) -> None:
        """Run tasks until none is left (on a worker)."""
        while (index := self._claim()) is not None:
            outcome = self.outcomes[index]
            outcome.began = True
            try:
                outcome.value = self._tasks[index]()
            except BaseException as exc:  # noqa: BLE001  (handed to the thread that waits for it)
                outcome.error = exc
            with self._lock:
                self._running -= 1

    def _claim(self) -> int | None:
        with self._lock:
            self.is_closed = (
                self.is_closed or self._next >= len(self._tasks) or not self._may_begin()
            )
            if self.is_closed:
                if self._running == 0:
                    self._over.put(True)
                return None
            index = self._next
            self._next += 1
            self._running += 1
            if self._next < len(self._tasks):
                self._tickets.put(self)
            return index
