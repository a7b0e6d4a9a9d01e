"""The threads that fill the buffer's ``ready``: workers for the process step, and the reader of the
journal.

Each worker has a line of its own, and all requests of one key are in one line. A step that fails is
repeated as its :class:`~leaderq.producing.options.ProducerRetry` says, while its line waits (the
order within the key stands above speed), and then the request has failed. A step may be repeated
after a crash as well: with a journal, it is the request that is kept, not what was made of it.

The journal's reader also looks, while something is in the journal only, at what the journal's
thread has stored: that thread must not wait for the lock of the buffer to tell.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from leaderq.clock import now_s
from leaderq.errors import LeaderqError
from leaderq.producing.account import LossReason
from leaderq.producing.buffer import Gone, RequestBuffer
from leaderq.producing.memory import BufferedRequest
from leaderq.producing.options import ProducerRetry
from leaderq.producing.spill import Spill
from leaderq.threads import Service

log = logging.getLogger(__name__)

_PIECE = 64
_PAUSE_S = 0.5


class _Skip:
    def __repr__(self) -> str:
        return "SKIP"


SKIP: Final = _Skip()
"""What a process step returns for a request of which nothing is to be sent."""


class ProcessWorker:
    """Runs the process step for one line of requests."""

    def __init__(
        self,
        buffer: RequestBuffer,
        number: int,
        process: Callable[[Any], Any],
        retry: ProducerRetry,
        name: str,
    ) -> None:
        self._buffer = buffer
        self._number = number
        self._process = process
        self._retry = retry
        self.service = Service(f"leaderq-{name}-worker-{number}", self._run)

    def _run(self, service: Service) -> None:
        while requests := self._buffer.take_for_processing(self._number, _PIECE):
            ready: list[BufferedRequest] = []
            gone: list[Gone] = []
            for one in requests:
                self._step(one, ready, gone)
                if self._buffer.is_stopped:
                    return
            self._buffer.processed(ready)
            if gone:
                self._buffer.settle((), gone)

    def _step(self, one: BufferedRequest, ready: list[BufferedRequest], gone: list[Gone]) -> None:
        attempt = 0
        while not self._buffer.is_stopped:
            if one.is_expired(now_s()):
                gone.append((one, LossReason.EXPIRED, None))
                return
            try:
                one.output = self._process(one.request)
            except BaseException as exc:  # noqa: BLE001 - the user's step, also SystemExit: it fails this request, which is told
                attempt += 1
                most = self._retry.max_attempts
                if most is not None and attempt >= most:
                    gone.append((one, LossReason.PROCESS, exc))
                    return
                # What is done already need not wait for it.
                self._buffer.processed(ready)
                ready.clear()
                self.service.pause(self._retry.backoff.delay_s(attempt))
            else:
                if one.output is SKIP:
                    gone.append((one, LossReason.SKIPPED, None))
                else:
                    ready.append(one)
                return


def journal_reader(buffer: RequestBuffer, spill: Spill, name: str) -> Service:
    """Reads the journal into memory, in order, while the state lets it. A journal that cannot be
    read is tried again, twice a second."""

    def run(service: Service) -> None:
        while (order := buffer.next_order()) is not None:
            try:
                piece = spill.read(*order[:4])
            except (LeaderqError, OSError) as exc:
                log.error("journal cannot be read now error=%s", exc)  # noqa: TRY400 - said again each time
                spill.last_error = exc
                buffer.fill(None, order)
                service.pause(_PAUSE_S)
            else:
                buffer.fill(piece, order)

    return Service(f"leaderq-{name}-journal-reader", run)
