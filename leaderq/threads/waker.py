"""Wakes one waiting thread, or one waiting task of asyncio, from anywhere."""

from __future__ import annotations

from leaderq.threads import primitives


class Waker:
    """Wakes one thread that waits. Several wakes before the next wait count as one.

    Guarantees: ``wake`` never blocks, whoever calls it: any thread, a signal handler, a weakref
    finalizer, the waiter itself. A wake before the wait is not lost. Ctrl-C during a wait leaves
    the waker usable. Not guaranteed: that a wait which is interrupted by an exception leaves its
    wake for the next wait; check the condition before waiting again. If several threads wait, one
    of them is woken.
    """

    # Locked means: not woken. The state is one lock, because one call in C takes or releases it.
    # threading.Event has a lock of its own around its flag, which the interrupted thread may hold.
    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = primitives.Lock()
        self._lock.acquire()

    def wake(self) -> None:
        """Wake the waiter, or the next one to wait."""
        if self._lock.locked():
            try:
                self._lock.release()
            except RuntimeError:
                pass  # another thread has woken it meanwhile

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a wake; return whether it came within ``timeout_s`` seconds. ``None`` waits
        without end.
        """
        return self._lock.acquire(timeout=-1 if timeout_s is None else bounded_s(timeout_s))


class TaskWaker:
    """Wakes one waiting task, as :class:`Waker` wakes a thread; the event loop goes on during the
    wait. Make it in the task that waits.
    """

    __slots__ = ("_loop", "_woken")

    def __init__(self) -> None:
        import asyncio  # here, because most programs do without

        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()

    def wake(self) -> bool:
        """Wake the task; return whether its loop can still run it."""
        try:
            self._loop.call_soon_threadsafe(self._woken.set)
        except RuntimeError:
            return False  # the loop is closed, and with it the waiting task
        return True

    async def wait(self, timeout_s: float | None = None) -> None:
        """Wait until it is woken, or for ``timeout_s`` seconds; ``None`` waits without end."""
        # Not asyncio.wait_for, which before Python 3.12 may swallow a cancellation.
        timer = None if timeout_s is None else self._loop.call_later(timeout_s, self._woken.set)
        try:
            await self._woken.wait()
        finally:
            if timer is not None:
                timer.cancel()
        self._woken.clear()


def bounded_s(timeout_s: float) -> float:
    """A time-out that the standard library accepts: not negative, not too large for it; 0 for a
    NaN.
    """
    return min(max(0.0, timeout_s), primitives.TIMEOUT_MAX)
