"""One thread for one piece of work after the other, whose ends are waited for elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from leaderq.threads import primitives


class SubmittedWork:
    """What was given to a :class:`SerialExecutor`; any thread may ask about it."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        # Locks held until the work has begun, and has ended; cheaper than events.
        self._before, self._until_end = primitives.Lock(), primitives.Lock()
        self._before.acquire()
        self._until_end.acquire()
        self._error: BaseException | None = None

    def done(self, wait_s: float) -> bool:
        if not self.ended(wait_s):
            return False
        if self._error is not None:
            raise self._error
        return True

    def ended(self, wait_s: float) -> bool:
        """Whether it has succeeded or failed, within ``wait_s``."""
        if not self._until_end.acquire(timeout=wait_s):
            return False
        self._until_end.release()
        return True

    def begun(self, wait_s: float) -> SubmittedWork:
        """Wait until the work begins, or so long; returns itself."""
        self._before.acquire(timeout=wait_s)
        return self

    def run(self) -> None:
        self._before.release()
        try:
            self._work()
        except BaseException as exc:  # noqa: BLE001  (raised to whoever waits for it)
            self._error = exc
        self._until_end.release()


class SerialExecutor:
    """One thread for one piece of work after the other, from the first to :meth:`close`."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._queue: primitives.SimpleQueue[SubmittedWork | None] | None = None

    def submit(self, work: Callable[[], None]) -> SubmittedWork:
        """Begin ``work``; the future returned tells when it has ended."""
        submitted = SubmittedWork(work)
        if self._queue is None:
            queue = self._queue = primitives.SimpleQueue()
            run = partial(self._run, queue)
            self._thread = primitives.Thread(target=run, name=self._name, daemon=True)
            self._thread.start()
        self._queue.put(submitted)
        return submitted

    def close(self, wait_s: float = 0.0) -> None:
        """Let the thread finish its work and end, and wait for that up to so long; a later
        :meth:`submit` starts another.
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
