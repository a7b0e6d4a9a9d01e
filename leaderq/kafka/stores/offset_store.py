"""Where a career's progress is kept: one small interface, chosen by the career's ``offsets``; and
the two stores that keep nothing themselves, Kafka's and the user's own.

Whatever the store, the order on taking over is **fence, then load, then read**: else an offset
could be loaded that a zombie moves a moment later. A store lives as long as its career's object,
through many terms; :meth:`OffsetStore.fence` begins each. It is called by the consumer thread,
except for what it offers to the user's code (operations to go with the offsets, messages).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from leaderq.arguments import require
from leaderq.errors import ConfigurationError
from leaderq.kafka.clients.consumer import CommitFuture, ConsumerClient, KafkaAway, Offsets
from leaderq.kafka.record import Offset, Partition, epoch_of
from leaderq.term import Term
from leaderq.threads import primitives


class OffsetStore(ABC):
    """Keeps, for each partition, the offset at which the next reader begins.

    ``in_group``: the consumer must be a member of the group (else it only takes the partitions).
    ``undoes``: effects that go through the store vanish when their batch is not committed, so a
    batch that failed is done again from its beginning. ``handle_stores``: what ``handle`` returned
    from is stored, with its effects; only a call that failed is undone. ``is_silent``: a leader
    that only reads is not told that a newer one has fenced it, so from time to time it commits its
    positions again.

    Errors: those of :mod:`leaderq.kafka.clients.consumer`; ``KafkaFenced`` or ``Deposed`` where a
    newer leader exists.
    """

    in_group: bool
    undoes: bool
    handle_stores: bool = False
    is_silent: bool

    def fence(
        self, consumer: ConsumerClient, term: Term, allowed: Callable[[], None], timeout_s: float
    ) -> bool:
        """From now on refuse commits of earlier leaders, and hold the partitions (as a member of
        the group, or all of them); returns whether that is so yet. Called again until it is, and
        when the consumer was replaced within the term.
        """
        term.check()
        return consumer.join(allowed, timeout_s)

    @abstractmethod
    def load(self, consumer: ConsumerClient, term: Term, timeout_s: float) -> dict[Partition, int]:
        """The offsets committed; a partition never committed is absent."""

    @abstractmethod
    def commit(self, consumer: ConsumerClient, term: Term, offsets: Offsets) -> CommitFuture:
        """Begin to keep these offsets, one at a time, with the effects that wait for them; fails if
        a newer leader is there, and with ``EffectRefused`` if an effect can never be kept. If the
        outcome is unknown (an error that asks for another try), committing the same offsets again
        completes it, and no effect happens twice.
        """

    def commit_positions(
        self, consumer: ConsumerClient, term: Term, offsets: Offsets
    ) -> CommitFuture:
        """Begin to keep offsets without effects: where a partition begins or, as a proof, the same
        again. Effects that wait for the batch in hand are not touched.
        """
        return self.commit(consumer, term, offsets)

    def undo(self) -> None:  # noqa: B027 - nothing, where nothing waits
        """Drop the effects of the batch in hand: it has failed."""

    def close(self) -> None:  # noqa: B027 - nothing, where nothing is held
        """The term is over: release everything. May be called twice. Never raises."""


class KafkaOffsets(OffsetStore):
    """The group's committed offsets in Kafka itself; the fence is the static membership (KIP-345).

    *Guarantees:* once :meth:`fence` has returned ``True``, no earlier member of the name can
    commit. *Not guaranteed:* anything against commits from outside while the group has no member.
    """

    in_group = True
    undoes = False
    is_silent = True  # a fenced consumer's poll is silent: only a commit tells it

    def load(self, consumer: ConsumerClient, term: Term, timeout_s: float) -> dict[Partition, int]:
        return consumer.committed(timeout_s)

    def commit(self, consumer: ConsumerClient, term: Term, offsets: Offsets) -> CommitFuture:
        return consumer.commit(offsets, f"leaderq term {term.number}")


class DoneAtOnce:
    """A :class:`~leaderq.kafka.clients.consumer.CommitFuture` that was done at once."""

    def done(self, wait_s: float) -> bool:
        return True


LoadOffsets = Callable[[Term], Mapping[Any, int]]
"""From a term to where to read on, by ``Partition`` or ``(topic, number)``; absent: never read."""


class ExternalOffsets(OffsetStore):
    """The user's own store (``offsets="external"``), which is authoritative: ``handle`` writes a
    batch's results and its offsets in one transaction there. leaderq only seeks.

    The fence is the user's too: ``load_offsets`` **fences first, then reads**
    (:class:`~leaderq.kafka.stores.database_offsets.DatabaseOffsets` does both). It is called on the
    career thread; its answer is kept here for the consumer thread. A consumer replaced within a
    term reads on after the last batch whose ``handle`` returned.

    *Guarantees:* no record of a term is read before ``load`` has returned for that term.

    *Not guaranteed:* anything against a zombie whose writes the user's store does not compare; that
    ``auto_offset_reset="latest"`` means the same place to the next leader if this one had no batch.
    """

    in_group = False
    undoes = True
    handle_stores = True
    is_silent = False

    def __init__(self, load: LoadOffsets, where: str = "this career") -> None:
        self._load = load
        self._where = where
        self._lock = primitives.Lock()
        self._term: str | None = None
        self._offsets: dict[Partition, int] = {}

    def begin(self, term: Term) -> None:
        checked = checked_offsets(self._load(term), self._where)
        with self._lock:
            self._term, self._offsets = term.id, checked

    def load(self, consumer: ConsumerClient, term: Term, timeout_s: float) -> dict[Partition, int]:
        """The user's offsets, and those committed since; ``KafkaAway`` until any are known."""
        with self._lock:
            if self._term != term.id:
                raise KafkaAway(
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
    """The offsets that ``load_offsets`` of ``where`` returned, or a ConfigurationError."""
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
