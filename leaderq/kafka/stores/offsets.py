"""Where a career's progress is kept: one small interface, chosen by the career's ``offsets``.

Whatever the store, the order on taking over is the same, and is kept by
:mod:`leaderq.kafka.consuming.term_consumer`: **fence, then load, then read**. A store that loaded
first could be handed an offset that a zombie moves a moment later.

A store lives as long as its career's object, through many terms; :meth:`OffsetStore.fence` begins
each. It is called by the drain thread, except for what its own class offers to the user's code
besides (operations to go with the offsets, records to produce).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from leaderq.kafka.clients.drain import Drain, Offsets, Saving
from leaderq.kafka.record import Partition
from leaderq.term import Term


class OffsetStore(Protocol):
    """Keeps, for each partition, the offset at which the next reader begins.

    ``in_group``: the drain must be a member of the consumer group (else it only takes the
    partitions).
    ``undoes``: effects that go through the store vanish when their batch is not saved, so a batch
    that failed is done again from its beginning; elsewhere the part of it that was done stays done.
    ``is_silent``: a leader that only reads is not told that a newer one has fenced it, so from time
    to time it has to :meth:`place` its offsets again.

    Errors: those of :mod:`leaderq.kafka.clients.drain`; :class:`~leaderq.errors.KafkaFenced` or
    :class:`~leaderq.errors.Deposed` where a newer leader exists.
    """

    in_group: bool
    undoes: bool
    is_silent: bool

    def open(self) -> None:
        """Connect, in advance and without fencing anybody."""

    def fence(self, drain: Drain, term: Term, allowed: Callable[[], None], timeout_s: float) -> bool:
        """From now on refuse what an earlier leader saves, and hold the partitions; gives whether
        that is so yet.

        Called again until it gives ``True``, and whenever the drain was made anew within the term.
        """

    def load(self, drain: Drain, term: Term, timeout_s: float) -> dict[Partition, int]:
        """The offsets saved; a partition never saved is absent."""

    def save(self, drain: Drain, term: Term, offsets: Offsets) -> Saving:
        """Begin to keep these offsets, with the effects that wait to go with them; fails if a newer
        leader has fenced this one.

        One at a time. If the outcome is unknown (an error that asks for another try), saving the
        same offsets again completes it, and no effect happens twice.
        """

    def place(self, drain: Drain, term: Term, offsets: Offsets) -> Saving:
        """Begin to keep offsets that no effect belongs to: where a new partition begins, or the
        same ones again, as a proof.

        Leaves alone what waits to go with the batch in hand.
        """

    def undo(self) -> None:
        """Drop the effects that were to go with the batch in hand: it has failed."""

    def close(self) -> None:
        """The term is over: let go of what it held (abort what is open). May be called twice. Never
        raises.
        """


class KafkaOffsets:
    """The group's committed offsets in Kafka itself; the fence is the static membership.

    Guarantees: once :meth:`fence` has given ``True``, no earlier member of the same name can save.
    Not guaranteed: anything against a consumer that commits for the group from outside it while no
    member exists.
    """

    in_group = True
    undoes = False
    is_silent = True

    def open(self) -> None:
        """Nothing to connect: the drain's own connection is used."""

    def fence(self, drain: Drain, term: Term, allowed: Callable[[], None], timeout_s: float) -> bool:
        """Join under the career's name: the broker refuses the former holder of it (KIP-345)."""
        return drain.join(allowed, timeout_s)

    def load(self, drain: Drain, term: Term, timeout_s: float) -> dict[Partition, int]:
        """The committed offsets, with those of open transactions waited for."""
        return drain.committed(timeout_s)

    def save(self, drain: Drain, term: Term, offsets: Offsets) -> Saving:
        """Commit; done once the broker has acknowledged it."""
        return drain.commit(offsets, note_of(term))

    def place(self, drain: Drain, term: Term, offsets: Offsets) -> Saving:
        """Commit, all the same: a fenced consumer's ``poll`` is silent, so only this tells it."""
        return drain.commit(offsets, note_of(term))

    def undo(self) -> None:
        """Nothing goes with the offsets here."""

    def close(self) -> None:
        """Nothing is held."""


def note_of(term: Term) -> str:
    """What stands beside offsets committed to Kafka."""
    return f"leaderq term {term.number}"


class Saved:
    """A :class:`~leaderq.kafka.clients.drain.Saving` that was done at once."""

    def done(self, wait_s: float) -> bool:
        """It is."""
        return True
