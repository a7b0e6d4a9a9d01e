"""One background thread that can be started, woken and stopped in any order.

States: not started -> running -> ended; it may be stopped in each state, for good. No method holds
a lock, so a signal handler may call each of them, whatever it interrupts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from leaderq.base import clock
from leaderq.errors import FromOutside
from leaderq.threads import primitives
from leaderq.threads.waker import Waker, bounded_s

log = logging.getLogger(__name__)
Run = Callable[["Service"], object]
Step = Callable[[], float | None]
_STRUCK_S = 0.01


class Service:
    """Runs ``run(service)`` once, on a daemon thread called ``name``.

    Guarantees: ``run`` is called at most once, however many threads call ``start``. After ``start``
    has returned ``True``, it is called even if ``stop`` comes first, so that it can finish what was
    left to it; except after a ``stop`` amid the ``start``. After ``stop`` has returned ``True``,
    ``run`` is not running and never will be. What ``run`` raises, of any kind, is logged and kept
    in ``error``.
    Not guaranteed: that ``run`` ends, if it looks neither at ``wait`` nor at ``is_stopping``.
    """

    def __init__(self, name: str, run: Run) -> None:
        self.name = name
        self.error: BaseException | None = None
        self.is_stopping = False
        """Whether ``stop`` was called."""
        self._run = run
        self._waker = Waker()
        # Taken by the one call that starts the thread, for good.
        self._unclaimed = primitives.Lock()
        self._thread: primitives.Thread | None = None
        # Whether ``run`` is called at all: whoever sets it first decides, the thread or a stop.
        # (A dictionary, because ``setdefault`` is one step.)
        self._is_to_run: dict[None, bool] = {}

    @classmethod
    def repeating(cls, name: str, step: Step) -> Service:
        """A service that calls ``step()`` at once, and again when the seconds that ``step``
        returned have passed (``None``: never), or when it is woken. An exception of ``step`` ends
        the service.
        """

        def run(service: Service) -> None:
            while not service.is_stopping:
                service.wait(step())

        return cls(name, run)

    @classmethod
    def lasting(
        cls, name: str, step: Callable[[Service], bool], *, on_struck: Callable[[], object]
    ) -> Service:
        """A service that calls ``step(service)`` until that returns ``False``. If an exception is
        raised on its thread, the service logs it, calls ``on_struck`` after a pause, and goes on.
        """

        def run(service: Service) -> None:
            is_struck = False
            while True:
                try:
                    if is_struck:
                        service.pause(_STRUCK_S)
                        on_struck()
                        is_struck = False
                    while step(service):
                        pass
                    return
                except FromOutside:
                    raise  # a simulated process is killed
                except BaseException:
                    is_struck = True
                    log.exception("background thread was interrupted, and goes on name=%s", name)

        return cls(name, run)

    @property
    def is_running(self) -> bool:
        """Whether the thread was started and has not ended."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller is the service's own thread."""
        return self._thread is primitives.current_thread()

    def start(self) -> bool:
        """Start the thread, unless it was started or stopped before; return whether this call did.

        :raises RuntimeError: the system has no thread left; ``start`` may be called again.
        """
        if self.is_stopping or not self._unclaimed.acquire(blocking=False):
            return False
        self._thread = thread = primitives.Thread(target=self._serve, name=self.name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            self._thread = None
            self._unclaimed.release()
            raise
        return True

    def wake(self) -> None:
        """End the wait of the service now; if it is not waiting, its next wait ends at once."""
        self._waker.wake()

    def stop(self, timeout_s: float | None = None) -> bool:
        """Tell the service to end, or never to begin; return whether it ended within ``timeout_s``.

        ``None`` waits without end. The service's own thread does not wait, and gets ``False``.
        """
        self.is_stopping = True
        self._waker.wake()
        if self.is_current:
            return False
        while True:
            thread = self._thread
            if thread is not None:
                try:
                    thread.join(None if timeout_s is None else bounded_s(timeout_s))
                    return not thread.is_alive()
                except RuntimeError:
                    pass  # another thread is about to start it
            if not self._is_to_run.setdefault(None, False):
                return True

    def wait(self, timeout_s: float | None = None) -> bool:
        """For ``run``: sleep until ``wake``, ``stop`` or the time-out; return whether to go on."""
        if not self.is_stopping:
            self._waker.wait(timeout_s)
        return not self.is_stopping

    def pause(self, seconds: float) -> bool:
        """For ``run``: sleep until ``stop``, or for ``seconds``; return whether to go on.

        A wake during the pause does not end the pause; it ends the next :meth:`wait`.
        """
        until_s = clock.now_s() + seconds
        woken = False
        while not self.is_stopping and (left_s := until_s - clock.now_s()) > 0:
            woken = self._waker.wait(left_s) or woken
        if woken:
            self._waker.wake()
        return not self.is_stopping

    def _serve(self) -> None:
        if not self._is_to_run.setdefault(None, True):
            return
        try:
            self._run(self)
        except BaseException as error:  # whatever ends this thread has to be known
            self.error = error
            log.exception("background thread failed name=%s", self.name)
