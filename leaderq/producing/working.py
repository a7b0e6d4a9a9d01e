"""The process step: workers, each with a lane of its own, and all requests of one key in one lane.

A step that fails is repeated as its :class:`~leaderq.producing.patience.Retry` says, while its lane waits (the order
within the key stands above speed), and then the request has failed. A step may be repeated after a crash as well: with a
journal, it is the request that is kept, not what was made of it.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Any

from leaderq.clock import now_s
from leaderq.producing.account import Reason
from leaderq.producing.entry import Entry
from leaderq.producing.patience import Retry
from leaderq.producing.stock import Gone, Stock

log = logging.getLogger(__name__)

_PIECE = 64


class _Skip:
    def __repr__(self) -> str:
        return "SKIP"


SKIP = _Skip()
"""What a process step returns for a request of which nothing is to be sent."""


class Worker:
    """One lane's thread."""

    def __init__(self, stock: Stock, lane: int, process: Callable[[Any], Any], retry: Retry, name: str) -> None:
        self._stock = stock
        self._lane = lane
        self._process = process
        self._retry = retry
        self._pause = threading.Event()
        self._chance = random.Random()
        self.thread = threading.Thread(target=self._run, name=f"leaderq-{name}-worker-{lane}", daemon=True)

    def _run(self) -> None:
        while entries := self._stock.take_for_processing(self._lane, _PIECE):
            ready: list[Entry] = []
            gone: list[Gone] = []
            for entry in entries:
                self._step(entry, ready, gone)
                if self._stock.is_stopped:
                    return
            self._stock.processed(ready)
            if gone:
                self._stock.settle((), gone)

    def _step(self, entry: Entry, ready: list[Entry], gone: list[Gone]) -> None:
        attempt = 0
        while not self._stock.is_stopped:
            if entry.is_expired(now_s()):
                gone.append((entry, Reason.EXPIRED, None))
                return
            try:
                entry.output = self._process(entry.request)
            except BaseException as exc:  # noqa: BLE001 - the user's step, also SystemExit: it fails this request, which is told
                attempt += 1
                if self._retry.max_attempts is not None and attempt >= self._retry.max_attempts:
                    log.error("processing a request of key %r failed: %s: %s", entry.key, type(exc).__name__, exc)  # noqa: TRY400
                    gone.append((entry, Reason.PROCESS, exc))
                    return
                # What is done already need not wait for it.
                self._stock.processed(ready)
                ready.clear()
                self._pause.wait(self._retry.pause_s(attempt, self._chance.random()))
            else:
                if entry.output is SKIP:
                    gone.append((entry, Reason.SKIPPED, None))
                else:
                    ready.append(entry)
                return

    def stop(self) -> None:
        """Cut a pause short."""
        self._pause.set()
