"""The end of a producer, on a thread of its own: Ctrl-C, which comes to the main thread, cannot break it in two.

Whoever closes starts it and waits; one who is interrupted leaves it going, and the next to close waits for the same one.
Every step is bounded and is done whatever became of the one before: a sink that hangs, or whose ``close`` does, is left
behind, and what is pending then goes into the journal, or is given up and told.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from leaderq.clock import now_s
from leaderq.producing.feeding import Feeder
from leaderq.producing.journal.waiting import Signal
from leaderq.producing.sending import Sender
from leaderq.producing.sinks.sink import Sink
from leaderq.producing.spill import Spill
from leaderq.producing.stock import Stock
from leaderq.producing.working import Worker

log = logging.getLogger(__name__)

_STOP_S = 2.0
_WRITE_S = 10.0
_LOOK_S = 0.02
_END_S = 90.0
"""Longer than all steps together: seconds for the threads and the sink, ten to have memory written, half a minute each to
flush and to close the journal."""


class Ending:
    """See the module."""

    def __init__(
        self, stock: Stock, spill: Spill | None, sink: Sink, crew: Sequence[Sender | Worker | Feeder], name: str
    ) -> None:
        self._stock, self._spill, self._sink, self._crew, self._name = stock, spill, sink, crew, name
        self._threads = {one.thread for one in crew}
        self._begun = threading.Lock()
        self._gate = threading.Lock()
        self._waiting: list[Signal] = []
        self.is_over = False
        """Whether all is let go of."""

    def begin(self, timeout_s: float) -> None:
        """Let it go on in the background, if it does not yet: wait ``timeout_s`` for what is pending, then let go."""
        thread = threading.Thread(target=self._run, args=(timeout_s,), name=f"leaderq-{self._name}-ending", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()  # a second one ends at once; so an interrupt between two lines here does no harm
        except RuntimeError:  # some Pythons start no thread at the end of a program
            self._run(timeout_s)

    def wait(self, timeout_s: float) -> None:
        """Until it is over, but no longer than ``timeout_s`` and all steps may take. At once on a thread that it needs
        itself: one that calls a listener."""
        if threading.current_thread() in self._threads or (self._spill is not None and self._spill.is_telling_here):
            return
        over = Signal()  # each has its own, so one who is interrupted leaves nothing behind that the ending needs
        with self._gate:
            if self.is_over:
                return
            self._waiting.append(over)
        if not over.wait(timeout_s + _END_S):
            log.error("producer %s: closing goes on in the background, something in it takes too long", self._name)

    def _run(self, timeout_s: float) -> None:
        if not self._begun.acquire(blocking=False):
            return
        try:
            self._stock.wait_settled(timeout_s)
            self._stop_crew()
            self._close_sink()
        finally:
            try:
                self._put_away()
            finally:
                self._tell_over()

    def _tell_over(self) -> None:
        with self._gate:
            self.is_over = True
            waiting, self._waiting = self._waiting, []
        for over in waiting:
            over.give()

    def _stop_crew(self) -> None:
        self._stock.stop()
        deadline = now_s() + _STOP_S
        for one in self._crew:
            one.stop()
        for one in self._crew:
            if one.thread is threading.current_thread():
                continue
            one.thread.join(max(0.0, deadline - now_s()))
            if one.thread.is_alive():
                log.warning("producer %s: %s did not end in time, and is left behind", self._name, one.thread.name)

    def _close_sink(self) -> None:
        def close() -> None:
            try:
                self._sink.close(_STOP_S)
            except Exception:
                log.exception("producer %s: closing its sink failed", self._name)

        thread = threading.Thread(target=close, name=f"leaderq-{self._name}-sink-closing", daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:  # see begin
            close()
            return
        thread.join(2 * _STOP_S)
        if thread.is_alive():
            log.warning("producer %s: closing its sink takes too long, and is left behind", self._name)

    def _put_away(self) -> None:
        self._stock.stop()
        give_up_s = now_s() + _WRITE_S
        while not self._stock.is_written_down() and now_s() < give_up_s:
            time.sleep(_LOOK_S)
        self._stock.leave()
        if self._spill is not None:
            self._spill.flush()
            self._stock.acknowledge_late()
            self._spill.close()
        self._stock.left()
        balance = self._stock.account.balance()
        if balance.pending or balance.dropped:
            log.warning(
                "producer %s was closed with %d requests left in its journal; dropped: %s",
                self._name,
                balance.pending,
                balance.dropped,
            )
