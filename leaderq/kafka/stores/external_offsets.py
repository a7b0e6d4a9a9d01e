"""Offsets in a store of the user's, written by the user's code: ``offsets="external"``."""

from __future__ import annotations

from types import MappingProxyType

from leaderq.kafka.clients.consumer import ConsumerClient, Offsets
from leaderq.kafka.record import Partition
from leaderq.kafka.stores.offset_store import (
    DeliveryPromise,
    DoneAtOnce,
    LoadOffsets,
    OffsetStore,
    StoreAway,
    StoreContext,
    checked_offsets,
)
from leaderq.term import Term


class ExternalOffsets(OffsetStore):
    """The user's own store (``offsets="external"``), which is authoritative: ``handle`` writes a
    batch's results and its offsets in one transaction there. leaderq only seeks.

    The fence is the user's too: ``load_offsets`` **fences first, then reads**
    (:class:`~leaderq.kafka.stores.database_offsets.DatabaseOffsets` does both). It is called on the
    career thread; its answer is kept here for the consumer thread. If the consumer is replaced
    within a term, the new one continues after the last batch whose ``handle`` returned.

    *Guarantees:* no record of a term is read before ``load`` has returned for that term.

    *Not guaranteed:* anything against a zombie whose writes the user's store does not compare; that
    ``auto_offset_reset="latest"`` means the same place to the next leader if this one had no batch.
    """

    word = "external"
    promises = DeliveryPromise.EXACTLY_ONCE, DeliveryPromise.AT_LEAST_ONCE
    needs = MappingProxyType({"load_offsets": "leaderq.kafka.DatabaseOffsets can help"})
    undoes = True
    handle_stores = True

    _load: LoadOffsets

    def __init__(self) -> None:
        # Of which term, and its offsets; replaced by the career thread, changed by the consumer's.
        self._loaded: tuple[str, dict[Partition, int]] = ("", {})

    def attach(self, context: StoreContext) -> None:
        assert context.load_offsets is not None
        self._load, self._where = context.load_offsets, context.where

    def begin(self, term: Term) -> None:
        loaded = checked_offsets(self._load(term), f"'load_offsets' of {self._where}")
        self._loaded = term.id, loaded

    def load(self, consumer: ConsumerClient, term: Term, timeout_s: float) -> dict[Partition, int]:
        """Return the user's offsets, and those committed since. Raises ``StoreAway`` until
        ``load_offsets`` has answered for this term.
        """
        loaded_by, offsets = self._loaded
        if loaded_by != term.id:
            raise StoreAway(
                f"'load_offsets' of {self._where} has not answered for term {term.number} yet"
            )
        return dict(offsets)

    def commit(self, consumer: ConsumerClient, term: Term, offsets: Offsets) -> DoneAtOnce:
        # ``handle`` has returned, so the user's store has these; or a partition begins there.
        loaded_by, known = self._loaded
        if loaded_by == term.id:
            known.update(offsets)
        return DoneAtOnce()
