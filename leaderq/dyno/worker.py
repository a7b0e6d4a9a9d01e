"""Handlers of Dyno messages on threads, with heartbeats, and a stop that gives back."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType

from leaderq.clock import now_s
from leaderq.dyno.delivery import Delivery, StaleLease
from leaderq.dyno.queue import DynoQueue
from leaderq.errors import ConfigurationError, LeaderqError
from leaderq.plain import require_finished, require_plain_function
from leaderq.threads import Backoff, BackoffPolicy

log = logging.getLogger(__name__)
_WAIT_S = 1.0
_BACKOFF = BackoffPolicy(0.1, 5.0)


class Postpone(Exception):
    """Raised by a handler: not now, but in ``delay_s`` seconds. No failure is counted."""

    def __init__(self, delay_s: float) -> None:
        super().__init__(f"postponed by {delay_s} s")
        self.delay_s = delay_s


class Kill(Exception):
    """Raised by a handler: never again; the message goes to the dead letters with this reason."""


class Worker:
    """Calls ``handler(delivery)`` on ``threads`` threads, for one message after another.

    A handler that returns acknowledges; one that raises has failed, and the message comes again as
    the queue's ``retry`` says, or never if the error is one of ``fatal``. :class:`Postpone` and
    :class:`Kill` say what else is to become of it. Leases are extended for as long as the handler
    works, ``most_s`` seconds at most (``None``: for ever).

    *Guarantees:* after :meth:`stop` no handler is begun, and what was not begun is given back at
    once. *Not guaranteed:* that a handler which hangs is ended: its message passes to another when
    ``most_s`` is over.

    :raises ConfigurationError: the handler is not a plain function, or a number cannot be.
    """

    def __init__(
        self,
        queue: DynoQueue,
        handler: Callable[[Delivery], object],
        *,
        threads: int = 1,
        most_s: float | None = None,
        fatal: Sequence[type[BaseException]] = (),
    ) -> None:
        if threads < 1:
            raise ConfigurationError(f"threads={threads!r}: give 1 or more")
        require_plain_function(handler, "the handler of a Worker")
        self._queue = queue
        self._handler = handler
        self._most_s = most_s
        self._fatal = tuple(fatal)
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, name=f"leaderq-dyno-worker-{number}", daemon=True)
            for number in range(threads)
        ]

    def start(self) -> None:
        """Begin."""
        for thread in self._threads:
            thread.start()

    def stop(self, timeout_s: float = 30.0) -> bool:
        """Begin nothing more; wait for what is being worked on. Returns whether all was done in
        ``timeout_s``."""
        self._stopping.set()
        deadline = now_s() + timeout_s
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(0.0, deadline - now_s()))
        return not any(thread.is_alive() for thread in self._threads)

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, _: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        backoff = Backoff(_BACKOFF)
        while not self._stopping.is_set():
            try:
                deliveries = self._queue.pop(1, _WAIT_S)
            except LeaderqError as exc:
                log.warning("nothing popped, trying again error=%s", exc)
                self._stopping.wait(backoff.next_s())
                continue
            backoff.reset()
            for delivery in deliveries:
                self._work(delivery)

    def _work(self, delivery: Delivery) -> None:
        try:
            if self._stopping.is_set():
                delivery.release()
                return
            self._queue.keep([delivery], most_s=self._most_s)
            self._handle(delivery)
        except StaleLease as exc:
            log.warning("message not settled, its lease was lost message=%s error=%s", delivery.id, exc)
        except LeaderqError as exc:
            log.warning("message not settled, it comes again message=%s error=%s", delivery.id, exc)
        finally:
            self._queue.let_go([delivery])

    def _handle(self, delivery: Delivery) -> None:
        settle: Callable[[], None]
        try:
            require_finished(self._handler(delivery), "the handler of a Worker")
        except Postpone as exc:
            settle = partial(delivery.postpone, exc.delay_s)
        except Kill as exc:
            settle = partial(delivery.kill, str(exc) or "killed")
        except self._fatal as exc:
            settle = partial(delivery.kill, f"{type(exc).__name__}: {exc}")
        except BaseException as exc:
            log.exception("handler failed message=%s deliveries=%d", delivery.id, delivery.deliveries)
            settle = partial(delivery.nack, exc)
        else:
            settle = delivery.ack
        if not delivery.is_settled:
            settle()
