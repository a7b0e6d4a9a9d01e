"""Which shards a queue has, whose each shard is, and into which shard a message goes."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from leaderq.base import chance
from leaderq.base.arguments import in_seconds, instance, is_text, plain_function, require
from leaderq.dyno.layout import escaped
from leaderq.dyno.message import DynoMessage
from leaderq.errors import ConfigurationError

_FORMAT = "dyno"
_KNOWN = {_FORMAT, "shards", "grouped", "lease_s", "ageing_s", "paused", "max"}
_UNREADABLE = (KeyError, ValueError, ArithmeticError, TypeError, RecursionError)
LEASE_S = 60.0


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """The settings in a queue's root. ``shards``: the shards to which messages are pushed (all
    existing shards are served). ``grouped``: messages with a group use only the first so many
    shards, so that a queue that grows keeps the order of its groups. ``is_paused``: nobody begins a
    message. ``max_messages``: 0: no limit. ``others``: settings that a later version wrote.
    """

    shards: tuple[str, ...]
    grouped: int
    lease_s: float = LEASE_S
    ageing_s: float | None = None
    is_paused: bool = False
    max_messages: int = 0
    others: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def of_groups(self) -> tuple[str, ...]:
        return self.shards[: self.grouped]

    def packed(self) -> bytes:
        said = {"shards": self.shards, "grouped": self.grouped, "lease_s": self.lease_s}
        said |= {} if self.ageing_s is None else {"ageing_s": self.ageing_s}
        said |= {"paused": True} if self.is_paused else {}
        said |= {"max": self.max_messages} if self.max_messages else {}
        return json.dumps({_FORMAT: 1, **said, **self.others}, separators=(",", ":")).encode()

    @classmethod
    def read(cls, data: bytes) -> QueueSettings | None:
        """Parse the bytes that :meth:`packed` returned; ``None`` if they are not settings: an older
        version made the queue.
        """
        try:
            said = json.loads(data)
            shards, ageing_s = tuple(said["shards"]), said.get("ageing_s")
            if _FORMAT not in said or not shards or not all(map(is_text, shards)):
                return None
            for shard in shards:
                escaped(shard)  # raises where no znode can be called so
            return cls(
                tuple(dict.fromkeys(shards)),
                min(max(1, int(said["grouped"])), len(shards)),
                in_seconds("lease_s", said["lease_s"]),
                None if ageing_s is None else in_seconds("ageing_s", ageing_s),
                bool(said.get("paused")),
                max(0, int(said.get("max", 0))),
                {key: value for key, value in said.items() if key not in _KNOWN},
            )
        except (*_UNREADABLE, ConfigurationError):
            return None

    def with_shards(self, names: Sequence[str]) -> QueueSettings:
        """Return these settings with exactly these shards; shards that stay keep their order."""
        stay = [shard for shard in self.shards if shard in names]
        grouped = len([shard for shard in self.of_groups if shard in names])
        shards = tuple(dict.fromkeys([*stay, *names]))
        return replace(self, shards=shards, grouped=grouped or len(shards))


ShardingStrategy = Callable[[Sequence[str], DynoMessage], str]
"""Returns one of the shards given. A message with a group goes by its group instead."""


def round_robin() -> ShardingStrategy:
    """A strategy: one shard after the other. The first is chosen at random, because many processes
    push only a few messages.
    """
    number = itertools.count(chance.randrange(2**31))
    return lambda shards, _message: shards[next(number) % len(shards)]


def by_id(shards: Sequence[str], message: DynoMessage) -> str:
    """A strategy: the message's id determines the shard.

    :raises ConfigurationError: the message has no id.
    """
    if not message.id:
        raise ConfigurationError("a shard by the id of a message that has none; give it an id")
    return hashed(shards, message.id)


def by_key(key: Callable[[DynoMessage], str]) -> ShardingStrategy:
    """A strategy: the text ``key(message)`` determines the shard."""
    require(plain_function("key", key))
    return lambda shards, message: hashed(shards, key(message))


def hashed(shards: Sequence[str], text: str) -> str:
    """Return the shard that a text determines, the same one in every process."""
    require(instance("the key of a shard", text, str))
    digest = hashlib.blake2s(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return shards[int.from_bytes(digest, "big") % len(shards)]


def shard_of(message: DynoMessage, queue: QueueSettings, strategy: ShardingStrategy) -> str:
    """Return the shard for a message. Raises ``ConfigurationError`` if the shard chosen is not one
    of this queue.
    """
    if message.shard is not None:
        chosen = message.shard
    elif message.group is not None:
        chosen = hashed(queue.of_groups, message.group)
    else:
        chosen = strategy(queue.shards, message)
    if chosen not in queue.shards:
        raise ConfigurationError(f"shard {chosen!r} is not one of {list(queue.shards)}")
    return chosen
