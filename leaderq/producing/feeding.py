"""The thread that reads the journal into memory, in order, while the state lets it."""

from __future__ import annotations

import logging
import threading

from leaderq.errors import LeaderqError
from leaderq.producing.spill import Spill
from leaderq.producing.stock import Stock

log = logging.getLogger(__name__)

_MOST_ITEMS = 1000
_PAUSE_S = 0.5


class Feeder:
    """See the module. A journal that cannot be read is tried again, twice a second."""

    def __init__(self, stock: Stock, spill: Spill, name: str) -> None:
        self._stock = stock
        self._spill = spill
        self._pause = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"leaderq-{name}-feeder", daemon=True)

    def _run(self) -> None:
        while (wanted := self._stock.wait_to_read()) is not None:
            after_id, items, size, stored = wanted
            try:
                piece = self._spill.read(after_id, min(items, _MOST_ITEMS), size)
            except (LeaderqError, OSError) as exc:
                log.error("the journal cannot be read at the moment: %s", exc)  # noqa: TRY400 - said again each time
                self._spill.last_error = exc
                self._stock.load(None, stored)
                self._pause.wait(_PAUSE_S)
                continue
            self._stock.load(piece, stored)

    def stop(self) -> None:
        """Cut a pause short."""
        self._pause.set()
