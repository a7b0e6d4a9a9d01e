"""What the handling of batches needs of its career, and how the career wants its batches.

A desk belongs to one career. ``handle`` and ``decode`` are the user's code and may be called on
worker threads; all else is called on the career thread only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from leaderq.kafka.dead_letters.format import Letter
from leaderq.kafka.record import Partition, Record
from leaderq.term import Term

MERGED = "merged"
BY_PARTITION = "partition"


class Desk(Protocol):
    """Where batches are worked on.

    ``undoes``: effects through the offset store vanish when their records are not saved.
    ``decodes``: whether there is anything to decode; if not, :meth:`decode` is never called.
    """

    undoes: bool
    decodes: bool

    def decode(self, record: Record) -> Record:
        """The record as ``handle`` shall see it; raises what the deserialisers raise."""

    def handle(self, records: Sequence[Record], term: Term) -> None:
        """The user's code."""

    def save(self, term: Term, ends: Mapping[Partition, int]) -> None:
        """Save these offsets and wait until that is done; raises :class:`~leaderq.errors.Deposed`
        or ``KafkaError``.
        """

    def undo(self) -> None:
        """Drop what was to go with offsets that are not saved yet."""

    def bury(self, term: Term, topic: str, letter: Letter) -> None:
        """Set a letter aside; durable on return, or part of what the next :meth:`save` stores."""


class Marks(Protocol):
    """Durable marks of attempts, by which a leader learns that its predecessors died of a record."""

    def is_careful(self, partition: Partition) -> bool:
        """Whether the next records of this partition are to be handled one by one, each marked
        before.
        """

    def before(self, term: Term, record: Record) -> int:
        """Mark an attempt durably; gives how many processes have died of this very record so far."""

    def after(self, term: Term, record: Record) -> None:
        """The record was passed: handled, skipped or buried, and saved."""


class Pace(Protocol):
    """Limits how fast records are handed out; see :mod:`leaderq.kafka.handling.rates`."""

    def parts(self, records: Sequence[Record]) -> Iterable[tuple[float, Sequence[Record]]]:
        """Pairs of how long to wait (seconds) and what to hand out then; together they are
        ``records``.
        """

    def handed_out(self) -> None:
        """The part given last is being handed out now."""


@dataclass(frozen=True)
class Shape:
    """How a batch is handed over.

    ``batches``: ``"merged"``, all records in one call, or ``"partition"``, one call for each
    partition. With ``workers`` of more than 1 always the latter, on so many threads.
    """

    workers: int = 1
    batches: str = MERGED

    @property
    def is_by_partition(self) -> bool:
        """Whether one call never has records of two partitions."""
        return self.batches == BY_PARTITION or self.workers > 1
