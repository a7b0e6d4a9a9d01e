"""Parts of a batch: what is handed over in one call, one attempt at it, and how a part that failed
is cut around the culprit.

An attempt may run on a worker thread; all else is pure.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial

from leaderq.clock import now_s
from leaderq.kafka.handling.on_error import PoisonRecord, is_about_records, place_of
from leaderq.kafka.record import Batch, Partition, Record
from leaderq.plain import require_finished
from leaderq.term import Term


class PartMode(Enum):
    """How the records of a part are handed over."""

    TOGETHER = "together"
    ISOLATED = "isolated"
    """One by one, since one of them made them fail together, and it is not known which."""
    CAREFUL = "careful"
    """One by one, each marked durably before, since one of them may kill the process."""


@dataclass(frozen=True)
class PartFailure:
    """An attempt at a part that failed. ``index``: the culprit's place, if known; ``touched``: the
    user's handle ran, so all before it is done; ``is_outage``: nothing counts against the records.
    """

    error: Exception
    index: int | None
    touched: bool
    is_outage: bool = False


@dataclass(eq=False)
class BatchPart:
    """Records next in line of their partitions, and what was tried with them so far.

    ``ends`` are to be committed once they are done (``None``: after each last record). ``failed``
    counts their own attempts in vain, ``before`` those within a larger part; ``failure`` is to be
    judged. ``at_once``: committed as soon as it is done. ``marked``: its durable mark is set.
    """

    records: Sequence[Record]
    ends: Mapping[Partition, int] | None = None
    mode: PartMode = PartMode.TOGETHER
    at_once: bool = False
    failed: int = 0
    before: int = 0
    failure: PartFailure | None = None
    marked: bool = False

    @property
    def attempts(self) -> int:
        return self.before + self.failed

    def failed_with(self, failure: PartFailure) -> int:
        """How many attempts in vain its culprit will have made by itself, once it is cut out."""
        return 1 if failure.index is not None and len(self.records) > 1 else self.failed + 1

    def head(self) -> tuple[BatchPart, BatchPart | None]:
        if len(self.records) == 1:
            return self, None
        first = BatchPart(self.records[:1], None, self.mode, before=self.before)
        return first, BatchPart(self.records[1:], self.ends, self.mode, before=self.before)

    def isolated(self) -> BatchPart:
        return BatchPart(self.records, self.ends, PartMode.ISOLATED, before=self.attempts)

    def again(self) -> BatchPart:
        """The same records once more, their effects undone; committed as soon as they are done."""
        return BatchPart(self.records, self.ends, at_once=True)

    def together(self) -> BatchPart:
        """The same records, to be handed over together and with nothing counted against them."""
        return BatchPart(self.records, self.ends)

    def without(self, partition: Partition) -> BatchPart | None:
        rest = [record for record in self.records if (record.topic, record.partition) != partition]
        if len(rest) == len(self.records):
            return self
        return replace(self, records=rest, ends=None) if rest else None

    def cut(self, failure: PartFailure) -> tuple[BatchPart | None, BatchPart, BatchPart | None]:
        at = failure.index
        if at is None or len(self.records) == 1:
            self.failed += not failure.is_outage
            self.failure = failure
            return None, self, None
        before = BatchPart(self.records[:at], at_once=True) if at else None
        culprit = BatchPart(self.records[at : at + 1], at_once=True, before=self.attempts)
        culprit.failed, culprit.failure = int(not failure.is_outage), failure
        behind = self.records[at + 1 :]
        return before, culprit, BatchPart(behind, self.ends) if behind else None


def ends_of(part: BatchPart, batch: Batch) -> Mapping[Partition, int]:
    """What is to be committed when this part is done; with a partition's last record comes its end
    in the batch, which may lie further on (transaction markers).
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
    grouped: dict[Partition, list[Record]] = {}
    for record in records:
        grouped.setdefault(Partition(record.topic, record.partition), []).append(record)
    return grouped


Decode = Callable[[Record], Record]
Handle = Callable[[Sequence[Record], Term], None]


def attempt(
    decode: Decode | None, handle: Handle, records: Sequence[Record], term: Term
) -> PartFailure | None:
    """Decode all, then handle; returns ``None`` when that went well, else what is to be judged.
    Errors that are not about records are raised, also as the cause of a PoisonRecord.
    """
    # A copy where it is a list: the user may empty what was handed over, and then raise.
    handed: Sequence[Record] = list(records) if isinstance(records, list) else records
    if decode is not None:
        decoded: list[Record] = []
        error = _caught(partial(_decode, decode, records, decoded))
        if error is not None:
            return PartFailure(_own_error(error), len(decoded), touched=False)
        handed = decoded
    error = _caught(partial(_handle, handle, handed, term))
    if error is None:
        return None
    index = place_in(records, error.record) if isinstance(error, PoisonRecord) else None
    return PartFailure(_own_error(error), index, touched=True)


def _caught(user_code: Callable[[], object]) -> Exception | None:
    """What it raised, to be judged."""
    try:
        user_code()
    except Exception as exc:  # noqa: BLE001
        return exc
    return None


def _decode(decode: Decode, records: Sequence[Record], decoded: list[Record]) -> None:
    for record in records:
        found = decode(record)
        require_finished(found.key, "key_deserializer")
        require_finished(found.value, "value_deserializer")
        decoded.append(found)


def _handle(handle: Handle, records: Sequence[Record], term: Term) -> None:
    returned: object = handle(records, term)  # type: ignore[func-returns-value]
    require_finished(returned, "handle")


def _own_error(error: Exception) -> Exception:
    """The user's own error, raised if it is not about the records: here, outside the ``except``
    that caught it, so that it comes out with no context added.
    """
    own: BaseException = error
    if isinstance(error, PoisonRecord) and error.__cause__ is not None:
        own = error.__cause__
    if not isinstance(own, Exception) or not is_about_records(own):
        raise own
    return own


class HandleCalls:
    """Calls ``handle``, on any thread, and knows which calls have not returned: one may hang."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._running: dict[int, tuple[float, Sequence[Record]]] = {}

    def __call__(self, records: Sequence[Record], term: Term) -> None:
        thread = threading.get_ident()
        self._running[thread] = now_s(), records
        try:
            return self._handle(records, term)
        finally:
            self._running.pop(thread, None)

    def overdue(self, budget_s: float) -> list[str]:
        """What has been handled for longer than ``budget_s`` seconds, each as a sentence."""
        now, running = now_s(), list(self._running.values())
        what = "handle has been called for %.1f s with %d record(s) from %s"
        return [
            what % (now - began_s, len(records), place_of(records[0]))
            for began_s, records in running
            if now - began_s > budget_s
        ]


REST_FROM_S = 0.5


class RestingParts:
    """The part of each resting partition that failed, with its attempts; within one term. What was
    fetched ahead is thrown away, which is worth it from :data:`REST_FROM_S` on.
    """

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
        """The parts that ``batch`` begins with; others, whose offset was moved, are forgotten."""
        found = []
        for where in batch.records.keys() & self._parts.keys():
            part, rows = self._parts.pop(where), batch.records[where]
            if rows[0].offset == part.records[0].offset:
                found.append(replace(part, records=rows[: len(part.records)], ends=None))
        return found
