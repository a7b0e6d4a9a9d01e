"""A thread that runs one piece of work after another; other threads can wait for the end of
each.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from leaderq.threads import primitives


class SubmittedWork:
    """One piece of work of a :class:`SerialExecutor`; any thread may ask whether it has ended."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._until_end = primitives.Lock()  # cheaper than an event
        self._until_end.acquire()
        self._error: BaseException | None = None

    def done(self, wait_s: float) -> bool:
        if not self.ended(wait_s):
            return False
        if self._error is not None:
            raise self._error
        return True

    def ended(self, wait_s: float) -> bool:
        """Wait at most ``wait_s`` seconds for the work; return whether it has ended, with an error
        or not.
        """
        if not self._until_end.acquire(timeout=wait_s):
            return False
        self._until_end.release()
        return True

    def run(self) -> None:
        try:
            self._work()
        except BaseException as exc:  # noqa: BLE001  (raised to whoever waits for it)
            self._error = exc
        self._until_end.release()


class SerialExecutor:
    """Runs one piece of work after another, on a thread that lives from the first one to
    :meth:`close`.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: primitives.SimpleQueue[SubmittedWork | None] | None = None

    def submit(self, work: Callable[[], None]) -> SubmittedWork:
        """Run ``work`` after all work submitted before; the object returned tells when it has
        ended.

        :raises RuntimeError: the system has no thread left; ``submit`` may be called again.
        """
        submitted = SubmittedWork(work)
        if self._queue is None:
            queue: primitives.SimpleQueue[SubmittedWork | None] = primitives.SimpleQueue()
            run = partial(self._run, queue)
            self._thread = primitives.Thread(target=run, name=self._name, daemon=True)
            self._thread.start()
            self._queue = queue  # after it: else work would wait for a thread that did not start
        self._queue.put(submitted)
        return submitted

    def close(self, wait_s: float = 0.0) -> None:
        """Let the thread finish its work and end; wait for that at most ``wait_s`` seconds. A later
        :meth:`submit` starts a new thread.
        """
        if self._queue is not None:
            self._queue.put(None)
            if wait_s:
                self._thread.join(wait_s)
            self._queue = None

    @staticmethod
    def _run(queue: primitives.SimpleQueue[SubmittedWork | None]) -> None:
        while (work := queue.get()) is not None:
            work.run()
