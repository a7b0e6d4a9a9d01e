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

StoreChoice = type[OffsetStore] | OffsetStore
"""What ``offsets`` of a career means: one of :data:`STORES`, or the user's own store."""


def chosen(offsets: object) -> StoreChoice | None:
    """The store that ``offsets`` of a career names, or is; ``None`` if it is neither."""
    if isinstance(offsets, OffsetStore):
        return offsets
    if isinstance(offsets, type) and offsets in STORES.values():
        return offsets
    return STORES.get(offsets) if isinstance(offsets, str) else None


def opened(choice: StoreChoice, context: StoreContext) -> OffsetStore:
    """The store of one career."""
    store = choice() if isinstance(choice, type) else choice
    if store.used_by not in (None, context.career):
        raise ConfigurationError(
            f"offsets of {context.where} is a store that the career {store.used_by!r} of this"
            f" process uses; give each career a {type(store).__name__} of its own"
        )
    store.used_by = context.career
    store.attach(context)
    return store
