"""The thread that reads the journal into memory, in order, while the state lets it.

It is also the one that looks, while something is in the journal only, what the journal's thread has stored: that thread
must not wait for the lock of the stock to tell.
"""

from __future__ import annotations

import logging
import threading
from typing import NamedTuple

from leaderq.errors import LeaderqError
from leaderq.producing.spill import Piece, Spill
from leaderq.producing.stock import Stock

log = logging.getLogger(__name__)

_MOST_ITEMS = 1000
_PAUSE_S = 0.5
_LOOK_S = 0.02


class Order(NamedTuple):
    """What to read: behind which id and up to which, how much memory has room for, and how many requests are stored
    there."""

    after_id: int
    last_id: int
    items: int
    bytes: int
    stored: int


class Feeder:
    """See the module. A journal that cannot be read is tried again, twice a second."""

    def __init__(self, stock: Stock, spill: Spill, name: str) -> None:
        self._stock = stock
        self._spill = spill
        self._pause = threading.Event()
        self.thread = threading.Thread(target=self._run, name=f"leaderq-{name}-feeder", daemon=True)

    def _run(self) -> None:
        while (order := self._awaited()) is not None:
            piece: Piece | None = None
            try:
                piece = self._spill.read(order.after_id, order.last_id, min(order.items, _MOST_ITEMS), order.bytes)
            except (LeaderqError, OSError) as exc:
                log.error("the journal cannot be read at the moment: %s", exc)  # noqa: TRY400 - said again each time
                self._spill.last_error = exc
            self._load(piece, order)
            if piece is None:
                self._pause.wait(_PAUSE_S)

    def _awaited(self) -> Order | None:
        """What to read, once something is to be read. ``None``: stop."""
        stock, unread = self._stock, self._stock.unread
        while True:
            with stock.lock:
                if stock.is_stopped:
                    return None
                stock.collect()
                if unread.is_held_up:
                    stock.look_for_room(0)
                ids = unread.take_acks()
                if not ids:
                    if stock.may_read and unread.stored:
                        unread.is_read = True
                        return self._order()
                    stock.to_read.wait(_LOOK_S if unread.count or self._spill.news else None)
            stock.acknowledge(ids)

    def _order(self) -> Order:
        marks, memory, unread = self._stock.marks, self._stock.memory, self._stock.unread
        items = max(1, int(marks.high * marks.max_items) - len(memory))
        size = max(1, int(marks.high * marks.max_bytes) - memory.bytes)
        return Order(unread.up_to, unread.noted, items, size, unread.stored)

    def _load(self, piece: Piece | None, order: Order) -> None:
        stock = self._stock
        with stock.lock:
            stock.unread.is_read = False
            if piece is not None:
                for entry in stock.taken_out(piece, order.stored):
                    stock.push(entry)
            ids = stock.unread.take_acks()
            stock.judge()
        stock.acknowledge(ids)
        stock.teller.tell()

    def stop(self) -> None:
        """Cut a pause short."""
        self._pause.set()
