"""Which shards a queue has, which is whose, and where a message goes."""

from __future__ import annotations

import hashlib
import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

from leaderq import chance
from leaderq.dyno.message import DynoMessage
from leaderq.dyno.settings import QueueSettings
from leaderq.errors import ConfigurationError


class ShardSupplier(ABC):
    """Says which shards there must be, and which of them this process serves first."""

    @abstractmethod
    def shards(self) -> Sequence[str]:
        """They are added to those of the queue, which all processes push to and serve."""

    def current_shard(self) -> str | None:
        """The shard that this process serves first; ``None``: by its rank among the consumers."""
        return None


class FixedShards(ShardSupplier):
    """The shards named, ``current`` being the one to serve first."""

    def __init__(self, *names: str, current: str | None = None) -> None:
        if not names or len(set(names)) < len(names):
            raise ConfigurationError(f"shards {names!r}: give one or more different names")
        if current is not None and current not in names:
            raise ConfigurationError(f"current shard {current!r} is not one of {names!r}")
        self._names, self._current = names, current

    def shards(self) -> Sequence[str]:
        return self._names

    def current_shard(self) -> str | None:
        return self._current


ShardingStrategy = Callable[[Sequence[str], DynoMessage], str]
"""Returns one of the shards given. A message with a group goes by its group instead."""


def round_robin() -> ShardingStrategy:
    """One shard after the other, from a random one on, because many processes push little."""
    number = itertools.count(chance.randrange(2**31))
    return lambda shards, _message: shards[next(number) % len(shards)]


def by_id(shards: Sequence[str], message: DynoMessage) -> str:
    """The shard that follows from the id.

    :raises ConfigurationError: the message has none.
    """
    if not message.id:
        raise ConfigurationError("a shard by the id of a message that has none; give it an id")
    return hashed(shards, message.id)


def by_key(key: Callable[[DynoMessage], str]) -> ShardingStrategy:
    """The shard that follows from ``key(message)``."""
    return lambda shards, message: hashed(shards, key(message))


def hashed(shards: Sequence[str], text: str) -> str:
    """The shard that follows from a text: the same in every process."""
    digest = hashlib.blake2s(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return shards[int.from_bytes(digest, "big") % len(shards)]


def shard_of(message: DynoMessage, queue: QueueSettings, strategy: ShardingStrategy) -> str:
    """The shard of a message. Raises ``ConfigurationError``: it is not a shard of this queue."""
    if message.shard is not None:
        chosen = message.shard
    elif message.group is not None:
        chosen = hashed(queue.of_groups, message.group)
    else:
        chosen = strategy(queue.shards, message)
    if chosen not in queue.shards:
        raise ConfigurationError(f"shard {chosen!r} is not one of {list(queue.shards)}")
    return chosen
