"""How far one term has handed out and committed, and where reading begins (pure).

``committed`` is the offset of each partition that the store is known to hold. Records read ahead
begin there, or where the batch in hand ends (``handed``). Only this file decides where reading goes
on after the store was asked again, and where it begins without an offset.

``policy`` is the career's ``auto_offset_reset``; ``None``: a group that never committed begins at
the first record, so that nothing is skipped; but a position that is *gone* (its records were
deleted, or the topic created again) stops the leader: only a person can know what was lost.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from math import inf
from operator import attrgetter

from leaderq.errors import KafkaError
from leaderq.kafka.clients.consumer import Offsets
from leaderq.kafka.record import Batch, Partition, Record


class Positions:
    """The offsets of one term, and which partitions rest. Not thread-safe. A column for each of
    these, because none is looked at without need for thousands of partitions.
    """

    def __init__(self, committed: Offsets) -> None:
        self.committed = dict(committed)
        self.parts: list[Batch] = []
        """What is in hand: each follows the one before it."""
        self.resting: dict[Partition, float] = {}
        """Until when nothing of a partition is read."""
        self.is_lost = False
        """Whether the batch in hand was dropped, and the career has not been handed another one."""

    @property
    def handed(self) -> dict[Partition, int]:
        """Where reading goes on: the ends of what is in hand, else what is committed."""
        found = dict(self.committed)
        for part in self.parts:
            found.update(part.ends)
        return found

    @property
    def in_hand(self) -> Batch | None:
        """All records that are handed out and not committed, as one batch; ``None``: none are."""
        if len(self.parts) > 1:
            self.parts = [joined(self.parts)]
        return self.parts[0] if self.parts else None

    def settle(self, ends: Offsets) -> None:
        """Note that the offsets ``ends`` were committed: of records in hand, of which those after
        them stay there, or of partitions that begin there.
        """
        self.committed.update(ends)
        left = (rest_of(part, self.committed) for part in self.parts)
        self.parts = [part for part in left if part is not None]

    def drop(self) -> None:
        """Give up the batch in hand without a commit; its records are read again, from the stored
        offsets.
        """
        self.parts, self.is_lost = [], True

    def rest(self, partition: Partition, until_s: float) -> None:
        """Give up the records in hand of ``partition`` without a commit. Read them again from the
        stored offset, but nothing before then.
        """
        self.resting[partition] = until_s
        parts, self.parts = self.parts, []
        for part in parts:
            records = {where: rows for where, rows in part.records.items() if where != partition}
            if records:
                self.parts.append(Batch(records))

    def wake(self, now_s: float) -> bool:
        """Whether some have rested long enough, and are to be read again from now on."""
        woken = [where for where, until_s in self.resting.items() if until_s <= now_s]
        for where in woken:
            del self.resting[where]
        return bool(woken)

    @property
    def wakes_s(self) -> float:
        """When the next one is to be read again; ``inf``: none rests."""
        return min(self.resting.values(), default=inf)

    def advance(self, positions: Offsets) -> None:
        """Note ``positions`` that were committed: the same as before, or, while nothing is in hand,
        positions after transaction markers.
        """
        for partition, offset in positions.items():
            if partition in self.committed:
                self.committed[partition] = max(offset, self.committed[partition])

    def resume(
        self, stored: Offsets, held: Collection[Partition], *own: Offsets
    ) -> frozenset[Partition]:
        """Take over the offsets that the store holds now (``stored``), for the partitions held now
        (``held``). Returns the partitions whose offset somebody else has moved.

        The store is authoritative. An offset is this term's own if it equals the committed one, or
        one in ``own`` (a commit whose answer was lost); from any other offset, reading continues
        there. The batch in hand is abandoned as a whole if one of its partitions was moved, or is
        not held any more: the new owner of that partition handles its records.
        """
        moved = frozenset(
            partition
            for partition, offset in stored.items()
            if partition in self.committed
            and offset not in {self.committed[partition], *(one.get(partition) for one in own)}
        )
        again = set(moved)
        in_hand = set().union(*(part.ends for part in self.parts))
        if not in_hand <= set(held) - moved:
            again |= in_hand  # a part of them may be in the store after all
            self.drop()
        for partition, offset in stored.items():
            if partition in again or partition not in self.committed:
                self.committed[partition] = offset
        for partition in set(self.committed) - set(held):
            del self.committed[partition]
        return moved


def joined(parts: Sequence[Batch]) -> Batch:
    records: dict[Partition, Sequence[Record]] = {}
    for part in parts:
        for where, rows in part.records.items():
            records[where] = [*records[where], *rows] if where in records else rows
    return Batch(records)


def rest_of(batch: Batch, committed: Offsets) -> Batch | None:
    if all(committed[partition] <= rows[0].offset for partition, rows in batch.records.items()):
        return batch
    records = {
        partition: rows[bisect_left(rows, committed[partition], key=attrgetter("offset")) :]
        for partition, rows in batch.records.items()
        if committed[partition] < batch.ends[partition]
    }
    return Batch(records) if records else None


def starts(
    policy: str | None,
    fresh: Collection[Partition],
    known: Collection[Partition],
    first: Offsets,
    last: Offsets,
    at: Callable[[], Offsets] | None = None,
) -> dict[Partition, int]:
    """Return the offset at which each of the ``fresh`` partitions begins; the ``known`` ones have
    an offset. A partition added to a topic that is being read begins at its first record, because
    nobody has skipped its records on purpose. ``at``, if given, is called when it is needed, and
    returns where the other partitions begin.
    """
    topics = {partition.topic for partition in known}
    new = {partition for partition in fresh if partition.topic not in topics}
    if new and at is not None:
        found = at()
        # a record of that time may be deleted by now
        begins = {partition: first[partition] for partition in fresh}
        return begins | {
            partition: max(found.get(partition, begins[partition]), begins[partition])
            for partition in new
        }
    if new and policy == "none":
        raise KafkaError(
            f"the group has no offset for {', '.join(map(str, sorted(new)))} and auto_offset_reset"
            " is 'none'; set the group's offsets, or choose 'earliest' or 'latest'"
        )
    return {
        partition: (last if policy == "latest" and partition in new else first)[partition]
        for partition in fresh
    }


def forgotten(
    reached: Mapping[str, int],
    fresh: Collection[Partition],
    recreated: Collection[str],
    first: Offsets,
) -> dict[Partition, int]:
    """Return the ``fresh`` partitions (without a stored offset) in which a former leader had read
    past the first record, each with the offset that it had ``reached``.
    """
    return {
        partition: reached[str(partition)]
        for partition in fresh
        if partition.topic not in recreated and reached.get(str(partition), 0) > first[partition]
    }


def resets(
    policy: str | None,
    positions: Offsets,
    recreated: Collection[str],
    cut: Collection[Partition],
    first: Offsets,
    last: Offsets,
) -> dict[Partition, int]:
    """Return new offsets for the partitions whose position is gone, whose topic was created again,
    or whose log was ``cut`` off in front of the position.
    """
    to = last if policy == "latest" else first

    def is_gone(where: Partition, position: int) -> bool:
        is_there = first[where] <= position <= max(last[where], first[where])
        return where.topic in recreated or where in cut or not is_there

    known = {where: at for where, at in positions.items() if where in first}
    return {where: to[where] for where, at in known.items() if is_gone(where, at)}


def recreated(before: Mapping[str, str], now: Mapping[str, str]) -> frozenset[str]:
    return frozenset(topic for topic, known in before.items() if now.get(topic, known) != known)


def may_reset(policy: str | None) -> bool:
    """Whether the user has said where to continue when a position is gone."""
    return policy in ("earliest", "latest")
