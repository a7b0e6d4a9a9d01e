"""What holds for all processes of a queue, as it stands in the data of its root (pure)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from leaderq.arguments import in_seconds, is_text
from leaderq.errors import ConfigurationError

_FORMAT = "dyno"
_KNOWN = {_FORMAT, "shards", "grouped", "lease_s", "ageing_s", "paused", "max"}
_UNREADABLE = (KeyError, ValueError, ArithmeticError, TypeError, RecursionError)
LEASE_S = 60.0


@dataclass(frozen=True, slots=True)
class QueueSettings:
    """``shards``: those to which messages are pushed; all that are there are served. ``grouped``:
    groups go by the first so many of them, so a queue that grows keeps the order of its groups.
    ``is_paused``: nobody begins a message. ``max_messages``: 0: no limit. ``others``: what a later
    version has written.
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
        """Undo :meth:`packed`; ``None`` if there are none: a former version has made the queue."""
        try:
            said = json.loads(data)
            shards, ageing_s = tuple(said["shards"]), said.get("ageing_s")
            if _FORMAT not in said or not shards or not all(map(is_text, shards)):
                return None
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
        """The same with these shards, and no others; those that stay keep their order."""
        stay = [shard for shard in self.shards if shard in names]
        grouped = len([shard for shard in self.of_groups if shard in names])
        shards = tuple(dict.fromkeys([*stay, *names]))
        return replace(self, shards=shards, grouped=grouped or len(shards))
