"""What is remembered of records whose partition was let go of until they are tried again.

A record that is to be tried again after a while holds up the records behind it, and no others: its
partition rests meanwhile, others are read and handled. The offset stays before the record, so
nothing of it is lost if the process dies; then its attempts are counted from 1 again. Reading
begins there anew, which throws away what was fetched ahead: some tenths of a second at worst, so
that it is worth it from :data:`REST_FROM_S` on.
"""

from __future__ import annotations

from dataclasses import replace

from leaderq.kafka.handling.parts import BatchPart
from leaderq.kafka.record import Batch, Partition

REST_FROM_S = 0.5


class RestingParts:
    """The part of each resting partition that failed, with its attempts; within one term."""

    def __init__(self) -> None:
        self._term = ""
        self._parts: dict[Partition, BatchPart] = {}

    def begin(self, term: str) -> None:
        """Forget what was remembered of another term."""
        if term != self._term:
            self._term, self._parts = term, {}

    def put(self, partition: Partition, part: BatchPart) -> None:
        """``part``, of this partition only, is to be tried again when it is handed out again."""
        self._parts[partition] = part

    def returned(self, batch: Batch) -> list[BatchPart]:
        """The parts that ``batch`` begins with in their partitions; whatever else it holds of a
        resting partition (somebody has moved the offset) begins from scratch.
        """
        found = []
        for where in batch.records.keys() & self._parts.keys():
            part, rows = self._parts.pop(where), batch.records[where]
            if rows[0].offset == part.records[0].offset:
                found.append(replace(part, records=rows[: len(part.records)], ends=None))
        return found
