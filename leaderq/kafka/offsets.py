"""Where a career's progress is kept: one small interface, chosen by the career's ``offsets``.

Whatever the store, the order on taking over is the same, and is kept by :mod:`leaderq.kafka.draining`: **fence, then load, then
read**. A store that loaded first could be handed an offset that a zombie moves a moment later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leaderq.errors import ConfigurationError
from leaderq.kafka.drain import Drain, Offsets
from leaderq.kafka.record import Partition
from leaderq.term import Term


class OffsetStore(Protocol):
    """Keeps, for each partition, the offset at which the next reader begins.

    Errors: those of :mod:`leaderq.kafka.drain`; :class:`~leaderq.errors.KafkaFenced` or :class:`~leaderq.errors.Deposed` where a
    newer leader exists.
    """

    def fence(self, drain: Drain, term: Term, allowed: Callable[[], None], timeout_s: float) -> bool:
        """From now on refuse what an earlier leader saves, and hold the partitions; gives whether that is so yet."""

    def load(self, drain: Drain, term: Term, timeout_s: float) -> dict[Partition, int]:
        """The offsets saved; a partition never saved is absent."""

    def save(self, drain: Drain, term: Term, offsets: Offsets, timeout_s: float) -> None:
        """Keep these offsets, durably, before returning; fails if a newer leader has fenced this one."""


class KafkaOffsets:
    """The group's committed offsets in Kafka itself; the fence is the static membership.

    Guarantees: once :meth:`fence` has given ``True``, no earlier member of the same name can save.
    Not guaranteed: anything against a consumer that commits for the group from outside it while no member exists.
    """

    def fence(self, drain: Drain, term: Term, allowed: Callable[[], None], timeout_s: float) -> bool:
        """Join under the career's name: the broker refuses the former holder of it (KIP-345)."""
        return drain.join(allowed, timeout_s)

    def load(self, drain: Drain, term: Term, timeout_s: float) -> dict[Partition, int]:
        """The committed offsets, with those of open transactions waited for."""
        return drain.committed(timeout_s)

    def save(self, drain: Drain, term: Term, offsets: Offsets, timeout_s: float) -> None:
        """Commit, and wait for the broker's acknowledgement."""
        drain.commit(offsets, f"leaderq term {term.number}", timeout_s)


_STORES: dict[str, Callable[[], OffsetStore]] = {"kafka": KafkaOffsets}
_PLANNED = ("zookeeper", "transaction", "external")


def store_named(name: str, where: str) -> OffsetStore:
    """The store that a career asks for with ``offsets = name``; ``where`` names the career's class.

    :raises ConfigurationError: there is none of that name.
    """
    if name in _STORES:
        return _STORES[name]()
    if name in _PLANNED:
        raise ConfigurationError(
            f"offsets={name!r} of {where} is not available in this version of leaderq; use offsets='kafka'"
        )
    raise ConfigurationError(f"offsets={name!r} of {where} is not known; use offsets='kafka'")
