"""Parts of a batch: what is handed over in one call, and how a part that failed is cut around the
culprit. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from leaderq.kafka.record import Batch, Partition, Record


class Mode(Enum):
    """How the records of a part are handed over."""

    TOGETHER = "together"
    ISOLATED = "isolated"
    """One by one, since one of them made them fail together, and it is not known which."""
    CAREFUL = "careful"
    """One by one, each marked durably before, since one of them may kill the process."""


@dataclass(frozen=True)
class Failure:
    """An attempt at a part that failed.

    ``index`` is the place of the culprit in the part, ``None`` if it is not known; ``touched`` says
    whether the user's handle ran: then all before the culprit is done.
    """

    error: Exception
    index: int | None
    touched: bool


@dataclass(eq=False)
class Part:
    """Records next in line of their partitions, and what was tried with them so far.

    ``ends`` are the offsets to be saved once they are done (``None``: those after the last record
    of each partition).
    ``failed`` counts their own attempts in vain, ``before`` those made while they were part of a
    larger part. ``failure`` is one that is still to be judged. ``at_once``: saved by itself as soon
    as it is done. ``marked``: its durable mark is set.
    """

    records: Sequence[Record]
    ends: Mapping[Partition, int] | None = None
    mode: Mode = Mode.TOGETHER
    at_once: bool = False
    failed: int = 0
    before: int = 0
    failure: Failure | None = None
    marked: bool = False

    @property
    def attempts(self) -> int:
        """All attempts in vain that these records took part in."""
        return self.before + self.failed

    @property
    def is_saved_alone(self) -> bool:
        """Whether it is saved as soon as it is done, rather than with the rest of the batch."""
        return self.at_once or self.mode is not Mode.TOGETHER

    def failed_with(self, failure: Failure) -> int:
        """How many attempts in vain its culprit will have made by itself, once it is cut out."""
        return 1 if failure.index is not None and len(self.records) > 1 else self.failed + 1

    def head(self) -> tuple[Part, Part | None]:
        """The first record by itself, and the others if there are any, in the same mode."""
        if len(self.records) == 1:
            return self, None
        first = Part(self.records[:1], mode=self.mode, before=self.before)
        return first, Part(self.records[1:], mode=self.mode, before=self.before, ends=self.ends)

    def isolated(self) -> Part:
        """The same records, to be handed over one by one."""
        return Part(self.records, ends=self.ends, mode=Mode.ISOLATED, before=self.attempts)

    def again(self) -> Part:
        """The same records once more, their effects having been undone; saved as soon as they are
        done.
        """
        return Part(self.records, ends=self.ends, at_once=True)

    def together(self) -> Part:
        """The same records, to be handed over together and with nothing counted against them."""
        return Part(self.records, ends=self.ends)

    def cut(self, failure: Failure) -> tuple[Part | None, Part, Part | None]:
        """What lies before the culprit, the culprit (with the failure to be judged), and what lies
        behind.

        Where the culprit is not known, it is the whole part.
        """
        at = failure.index
        if at is None or len(self.records) == 1:
            self.failed += 1
            self.failure = failure
            return None, self, None
        before = Part(self.records[:at], at_once=True) if at else None
        culprit = Part(self.records[at : at + 1], at_once=True, before=self.attempts, failed=1, failure=failure)
        rest = Part(self.records[at + 1 :], ends=self.ends) if at + 1 < len(self.records) else None
        return before, culprit, rest


def ends_of(part: Part, batch: Batch) -> Mapping[Partition, int]:
    """What is to be saved when this part is done, all before it being done too.

    With the last record of a partition comes the partition's end in the batch, which may lie
    further on (transaction markers).
    """
    if part.ends is not None:
        return part.ends
    last: dict[Partition, int] = {}
    for record in part.records:
        last[Partition(record.topic, record.partition)] = record.offset
    return {
        where: batch.ends[where] if offset == batch.records[where][-1].offset else offset + 1
        for where, offset in last.items()
    }


def place_in(records: Sequence[Record], culprit: Record) -> int | None:
    """Where ``culprit``, decoded or raw, stands among these; ``None`` if nowhere."""
    wanted = (culprit.topic, culprit.partition, culprit.offset)
    for index, record in enumerate(records):
        if record.offset == wanted[2] and (record.topic, record.partition, record.offset) == wanted:
            return index
    return None


def by_partition(records: Sequence[Record]) -> dict[Partition, list[Record]]:
    """Records grouped by partition, in order within each."""
    grouped: dict[Partition, list[Record]] = {}
    for record in records:
        grouped.setdefault(Partition(record.topic, record.partition), []).append(record)
    return grouped
