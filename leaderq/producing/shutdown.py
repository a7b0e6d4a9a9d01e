"""The end of a producer, on a thread of its own, so that Ctrl-C in the main thread ends the waiting
and never the shutdown.

Whoever closes starts it and waits; the next to close waits for the same one. Every step is bounded
and is done whatever became of the one before: a sink that hangs, or whose ``close`` does, is left
behind, and what is pending then goes into the journal, or is given up and told.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from leaderq.clock import now_s
from leaderq.errors import ProducerClosed
from leaderq.producing.account import LossReason
from leaderq.producing.buffer import RequestBuffer
from leaderq.producing.listeners import resolve
from leaderq.producing.memory import JournalCopy
from leaderq.producing.sinks.sink import Sink
from leaderq.threads import Service

log = logging.getLogger(__name__)

_STOP_S = 2.0
_WRITE_S = 10.0
_LOOK_S = 0.02
_END_S = 90.0
"""Longer than all steps together: seconds for the threads and the sink, ten to have memory written,
half a minute each to flush and to close the journal."""


class Shutdown:
    """See the module."""

    def __init__(
        self, buffer: RequestBuffer, sink: Sink, services: Sequence[Service], name: str
    ) -> None:
        self._buffer, self._spill, self._sink, self._name = buffer, buffer.spill, sink, name
        self._services = services
        self._timeout_s: float | None = None
        self._service = Service(f"leaderq-{name}-shutdown", lambda _: self._run())
        self._closing = Service(f"leaderq-{name}-sink-closing", lambda _: self._close_sink())
        self._over, self._sink_closed = threading.Event(), threading.Event()

    @property
    def is_over(self) -> bool:
        return self._over.is_set()

    def begin(self, timeout_s: float | None) -> None:
        """Let it go on in the background, if it does not yet: wait ``timeout_s`` for what is
        pending, then let go."""
        self._timeout_s = timeout_s
        try:
            self._service.start()
        except RuntimeError:  # some Pythons start no thread at the end of a program
            self._run()

    def wait(self, timeout_s: float | None) -> None:
        """Wait until it is over, but no longer than ``timeout_s`` and all steps may take. Return at
        once on a thread that it needs itself, such as one that calls a listener."""
        if self.is_own_thread:
            return
        if not self._over.wait(None if timeout_s is None else timeout_s + _END_S):
            log.error("closing goes on in the background producer=%s", self._name)

    @property
    def is_own_thread(self) -> bool:
        """Whether the caller is a thread of the producer, or the journal's that calls it back."""
        own = (*self._services, self._service, self._closing)
        is_writer = self._spill is not None and self._spill.journal.is_writer
        return is_writer or any(service.is_current for service in own)

    def _run(self) -> None:
        try:
            self._buffer.wait_settled(self._timeout_s)
            self._stop_services()
            self._end_sink()
        finally:
            try:
                self._put_away()
            finally:
                self._over.set()

    def _stop_services(self) -> None:
        self._buffer.stop()
        deadline = now_s() + _STOP_S
        for service in self._services:
            service.is_stopping = True
            service.wake()
        for service in self._services:
            if service.is_current:
                continue
            if not service.stop(deadline - now_s()):
                log.warning("thread left behind producer=%s thread=%s", self._name, service.name)

    def _end_sink(self) -> None:
        try:
            self._closing.start()
        except RuntimeError:  # see begin
            self._close_sink()
            return
        if not self._sink_closed.wait(2 * _STOP_S):
            log.warning("closing the sink hangs, left behind producer=%s", self._name)

    def _close_sink(self) -> None:
        try:
            self._sink.close(_STOP_S)
        except Exception:
            log.exception("closing the sink failed producer=%s", self._name)
        finally:
            self._sink_closed.set()

    def _put_away(self) -> None:
        buffer, spill = self._buffer, self._spill
        buffer.stop()
        give_up_s = now_s() + _WRITE_S
        while not buffer.write_down() and now_s() < give_up_s:
            time.sleep(_LOOK_S)
        with buffer.locked():
            self._give_up_unwritten(LossReason.CLOSED)
        if spill is not None:
            spill.flush()
            with buffer.locked():  # what was settled before its id was known
                ids = buffer.backlog.take_acks()
            spill.ack(ids)
            spill.close()
        self._tell_waiters()
        settlement = buffer.settlement()
        if settlement.journaled or not settlement:
            log.warning("producer closed producer=%s outcome=%s", self._name, settlement)

    def _give_up_unwritten(self, reason: LossReason) -> None:
        """Under the lock: give up what the journal does not have, and will not get."""
        buffer, spill = self._buffer, self._spill
        for one in [one for one in buffer.memory if not one.is_journaled]:
            buffer.memory.remove(one)
            is_never = one.copy is JournalCopy.NEVER
            why = spill.prepare(one) if spill is not None and is_never else None
            buffer.give_up(one, LossReason.JOURNAL if is_never else reason, why)

    def _tell_waiters(self) -> None:
        """The journal is closed: tell whoever waits that nothing more will be told."""
        buffer, spill = self._buffer, self._spill
        with buffer.locked():
            lost, waiters = buffer.backlog.leave()
            for one in lost:
                buffer.give_up(buffer.backlog.take_out(one), LossReason.JOURNAL, None)
            self._give_up_unwritten(LossReason.JOURNAL)  # the disk refused these a moment ago
            waiters += [(one.journal_id, one.waiter) for one in buffer.memory if one.waiter]
        for number, waiter in waiters:
            place = None if number is None or spill is None else spill.journal.place(number)
            text = "closed before it was confirmed; the request is in the journal, and is sent from"
            resolve(waiter, error=ProducerClosed(f"{text} there: {place}", place))
        buffer.tell_losses()
