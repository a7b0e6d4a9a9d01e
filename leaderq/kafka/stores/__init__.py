"""Where a career's progress is kept, and how each place refuses a former leader's commits.

:data:`STORES` lists leaderq's own; all that is said of a store stands in its class.
"""

from __future__ import annotations

from leaderq.errors import ConfigurationError
from leaderq.kafka.stores.external_offsets import ExternalOffsets
from leaderq.kafka.stores.kafka_offsets import KafkaOffsets
from leaderq.kafka.stores.offset_store import OffsetStore, StoreContext
from leaderq.kafka.stores.transaction_offsets import TransactionOffsets
from leaderq.kafka.stores.zookeeper_offsets import ZooKeeperOffsets

_OURS = KafkaOffsets, ZooKeeperOffsets, TransactionOffsets, ExternalOffsets
STORES: dict[str, type[OffsetStore]] = {each.word: each for each in _OURS}


def chosen(offsets: object) -> OffsetStore | None:
    """The store that ``offsets`` of a career is, or a new one of those it names; ``None`` if it is
    neither.
    """
    if isinstance(offsets, OffsetStore):
        return offsets
    return STORES[offsets]() if isinstance(offsets, str) and offsets in STORES else None


def open_store(store: OffsetStore, context: StoreContext) -> None:
    """Attach the store to its career. Raises ConfigurationError if another one has it open."""
    if store.used_by not in (None, context.career):
        raise ConfigurationError(
            f"offsets of {context.where} is a store that the career {store.used_by!r} of this"
            f" process uses; give each career a {type(store).__name__} of its own"
        )
    store.used_by = context.career
    store.attach(context)
