"""Threads that work on several partitions at once, while one career thread waits for all of them.

Interrupted while it waits, :meth:`PartitionWorkers.run` begins no further task and still waits for
those begun: the user's code must not go on behind the back of ``handOver``. A daemon thread that
hangs in the user's code does not keep the process alive.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
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
        self._count, self._name = count, name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._todo: deque[int] = deque()

    def run(
        self, tasks: Sequence[Callable[[], Any]], may_begin: Callable[[], bool]
    ) -> list[TaskOutcome]:
        outcomes = [TaskOutcome() for _ in tasks]
        todo = self._todo = deque(range(len(tasks)))
        over: SimpleQueue[None] = SimpleQueue()

        def work() -> None:
            try:
                while True:
                    if not may_begin():
                        todo.clear()  # once for all
                    index = todo.popleft()
                    outcome = outcomes[index]
                    outcome.began = True
                    try:
                        outcome.value = tasks[index]()
                    except BaseException as exc:  # noqa: BLE001  (for the thread that waits for it)
                        outcome.error = exc
            except IndexError:  # none is left
                pass
            finally:
                over.put(None)

        asked = 0
        try:
            while asked < min(self._count, len(tasks)):
                self._need_thread(asked)
                self._jobs.put(work)
                asked += 1
            while asked:
                asked -= _has_ended(over)
        except BaseException:
            todo.clear()
            while asked:
                asked -= _has_ended(over)
            raise
        return outcomes

    def _need_thread(self, number: int) -> None:
        if number == len(self._threads):
            name = f"{self._name}-{number}"
            thread = threading.Thread(target=_work, args=(self._jobs,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def close(self) -> None:
        """End the threads; one that hangs is left alone after 5 s. May be called twice."""
        threads, self._threads = self._threads, []
        for _ in threads:
            self._jobs.put(None)
        for thread in threads:
            thread.join(_CLOSE_S)
        self._jobs = SimpleQueue()


def _has_ended(over: SimpleQueue[None]) -> bool:
    with suppress(Empty):
        over.get(timeout=_SLICE_S)
        return True
    return False


def _work(jobs: SimpleQueue[Callable[[], None] | None]) -> None:
    while (job := jobs.get()) is not None:
        job()
