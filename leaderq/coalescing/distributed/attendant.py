"""Keeps the trust of the heads and waiters of one coordinator, and gives back what could not be given back at once.

One thread, begun with the first of them, asleep while there is nothing to do; it never waits for an answer. Every T/6 it
checks all their tokens, in one multi: an acknowledged write that proves the session, and tells which tokens were evicted.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

from leaderq.clock import now_s
from leaderq.coalescing.distributed.leaving import Leavings
from leaderq.coalescing.distributed.trust import Trust
from leaderq.errors import NoNode
from leaderq.zookeeper import Check, Session

_AT_ONCE = 200
_LOOK_S = 0.5


class Attended(Protocol):
    """A head, or a waiter."""

    @property
    def fence(self) -> Check:
        """Fails unless its token stands."""

    def note_missing(self) -> None:
        """Its token does not stand."""


class Attendant:
    """See the module. ``held`` gives those to be looked after."""

    def __init__(
        self,
        session: Session,
        trust: Trust,
        leavings: Leavings,
        held: Callable[[], Sequence[Attended]],
    ) -> None:
        self._session = session
        self._trust = trust
        self._leavings = leavings
        self._held = held
        self._lock = threading.Lock()
        self._woken = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None
        self._is_ticking = False  # it will look by itself soon, so that it need not be woken for each token

    def wake(self) -> None:
        """There is something to do, which is not urgent; from any thread, returns at once."""
        if self._thread is None:
            self._start()
        if not self._is_ticking:
            self._woken.set()

    def _start(self) -> None:
        with self._lock:
            if self._thread is None and not self._stopped.is_set():
                self._thread = threading.Thread(target=self._run, name="leaderq-coalescing", daemon=True)
                self._thread.start()

    def stir(self) -> None:
        """Look now, if there is anything to look after: the connection came or went."""
        self._woken.set()

    def stop(self, timeout_s: float) -> None:
        """Do no more; waits for the thread, which blocks nowhere."""
        with self._lock:
            self._stopped.set()
            thread = self._thread
        self._woken.set()
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout_s)

    def _run(self) -> None:
        due_s = 0.0
        while not self._stopped.is_set():
            self._woken.clear()
            self._is_ticking = False  # before looking: who has something new after that wakes us
            if not self._held() and not self._leavings:
                due_s = 0.0
                self._woken.wait()
                continue
            self._is_ticking = True
            if self._leavings:
                self._leavings.again()
            due_s = due_s or now_s() + self._trust.renewal_s
            if now_s() >= due_s:
                due_s = now_s() + self._trust.renewal_s
                self._renew(self._held())
            left_s = max(0.0, due_s - now_s())
            self._woken.wait(min(_LOOK_S, left_s) if self._leavings else left_s)

    def _renew(self, held: Sequence[Attended]) -> None:
        for begin in range(0, len(held), _AT_ONCE):
            part = held[begin : begin + _AT_ONCE]
            answer = self._session.multi_async([one.fence for one in part])
            answer.add_done_callback(partial(self._renewed, part, self._session.id, now_s()))

    def _renewed(
        self,
        part: Sequence[Attended],
        session: int | None,
        sent_s: float,
        answer: Future[list[Any]],
    ) -> None:
        error = answer.exception()
        if session is None or session != self._session.id or not (error is None or isinstance(error, NoNode)):
            return
        self._trust.heard(session, sent_s)
        if isinstance(error, NoNode) and error.index is not None:
            part[error.index].note_missing()
            self._renew([*part[: error.index], *part[error.index + 1 :]])
