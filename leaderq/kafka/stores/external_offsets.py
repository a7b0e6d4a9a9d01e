"""Offsets in a store of the user's, written by the user's code: ``offsets="external"``."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from leaderq.base.arguments import require
from leaderq.errors import ConfigurationError
from leaderq.kafka.clients.consumer import ConsumerClient, Offsets
from leaderq.kafka.record import Offset, Partition, epoch_of
from leaderq.kafka.stores.offset_store import (
    DeliveryPromise,
    DoneAtOnce,
    LoadOffsets,
    OffsetStore,
    StoreAway,
    StoreContext,
)
from leaderq.term import Term
from leaderq.threads import primitives


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
        self._lock = primitives.Lock()
        self._term: str | None = None
        self._offsets: dict[Partition, int] = {}

    def attach(self, context: StoreContext) -> None:
        assert context.load_offsets is not None
        self._load, self._where = context.load_offsets, context.where

    def begin(self, term: Term) -> None:
        checked = checked_offsets(self._load(term), self._where)
        with self._lock:
            self._term, self._offsets = term.id, checked

    def load(self, consumer: ConsumerClient, term: Term, timeout_s: float) -> dict[Partition, int]:
        """Return the user's offsets, and those committed since. Raises ``StoreAway`` until
        ``load_offsets`` has answered for this term.
        """
        with self._lock:
            if self._term != term.id:
                raise StoreAway(
                    f"'load_offsets' of {self._where} has not answered for term {term.number} yet"
                )
            return dict(self._offsets)

    def commit(self, consumer: ConsumerClient, term: Term, offsets: Offsets) -> DoneAtOnce:
        # ``handle`` has returned, so the user's store has these; or a partition begins there.
        with self._lock:
            if self._term == term.id:
                self._offsets.update(offsets)
        return DoneAtOnce()


def checked_offsets(offsets: Mapping[Any, int], where: str) -> dict[Partition, int]:
    """Return the offsets that ``load_offsets`` of the class ``where`` has returned. Raises
    ConfigurationError if they are malformed.
    """
    if not isinstance(offsets, Mapping):
        raise ConfigurationError(
            f"'load_offsets' of {where} returned {type(offsets).__name__}; it must return a mapping"
            " of (topic, partition) to the offset to read next, {} if there is none yet"
        )
    problems = []
    for key, value in offsets.items():
        is_place = isinstance(key, tuple) and len(key) == 2 and isinstance(key[0], str)
        if not (is_place and _is_count(key[1])):
            problems.append(
                f"'load_offsets' of {where} returned the key {key!r}; keys are (topic, partition),"
                " such as ('clicks', 0)"
            )
        elif not _is_count(value):
            problems.append(
                f"'load_offsets' of {where} returned the offset {value!r} for {key!r}; it must be a"
                " whole number, 0 or more"
            )
    require(*problems)
    return {Partition(*key): Offset(at, epoch_of(at)) for key, at in offsets.items()}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
