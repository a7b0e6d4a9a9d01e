"""A career that writes down all that is asked of it, with effects that are kept or undone as a real
store would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from terms import open_term as open_term

from leaderq.kafka.clients.consumer import EffectRefused
from leaderq.kafka.clients.producer import Message
from leaderq.kafka.dead_letters.format import read_dead_letter
from leaderq.kafka.declaration import delivery_of
from leaderq.kafka.handling.batch_handler import BatchHandler
from leaderq.kafka.handling.context import HandlingContext
from leaderq.kafka.handling.on_error import PoisonRecord, policy
from leaderq.kafka.record import Batch, Partition, Record
from leaderq.kafka.stores.handle_call import take_effect
from leaderq.kafka.stores.offset_store import DeliveryPromise
from leaderq.term import OpenTerm

A, B, C = Partition("t", 0), Partition("t", 1), Partition("t", 2)
RecordPlace = tuple[Partition, int]


def records(where: Partition, *offsets: int) -> list[Record]:
    return [
        Record(where.topic, where.number, offset, 0, None, b"v%d" % offset) for offset in offsets
    ]


def a_record(offset: int = 2, key: Any = b"k", **changes: Any) -> Record:
    return Record("t", 1, offset, 3, key, b"v").replace(**changes)


def a_batch(**offsets: Sequence[int]) -> Batch:
    """For instance ``a_batch(A=[0, 1], B=[7])``."""
    names = {"A": A, "B": B, "C": C}
    return Batch({names[name]: records(names[name], *each) for name, each in offsets.items()})


def where(record: Record) -> RecordPlace:
    return Partition(record.topic, record.partition), record.offset


class Bad(Exception):
    """The user's error."""


class FakeCareer:
    """``log`` has what happened: ``handle A0 A1``, ``commit A=2``, ``undo``, ``send_dead_letter
    A1``.

    ``fails`` is how often each record fails (a large number: always); ``undecodable`` those that
    never decode. With ``names``, the user's code works record by record and says which one failed;
    without, it only raises. ``refused``: the records whose effects no commit accepts. ``effects``
    are those of records that stand: with ``undoes`` only once they are committed.
    """

    def __init__(
        self,
        *,
        fails: Mapping[RecordPlace, int] | None = None,
        undecodable: frozenset[RecordPlace] = frozenset(),
        undoes: bool = False,
        names: bool = False,
        refused: frozenset[RecordPlace] = frozenset(),
    ) -> None:
        self.log: list[str] = []
        self.fails = dict(fails or {})
        self.undecodable = undecodable
        self.undoes = undoes
        self.names = names
        self.refused = refused
        self.effects: list[RecordPlace] = []
        self.committed: dict[Partition, int] = {}
        self.letters: list[Message] = []
        self.before_handle: Callable[[Sequence[Record]], None] = lambda _records: None
        self.before_commit: Callable[[], None] = lambda: None
        self._pending: list[RecordPlace] = []
        self._lock = threading.Lock()

    def decode(self, record: Record) -> Record:
        if where(record) in self.undecodable:
            raise Bad("not decodable")
        return record.replace(value=("decoded", record.value))

    def handle(self, records: Sequence[Record], term: OpenTerm) -> None:
        with self._lock:
            self.log.append("handle " + " ".join(map(_short, records)))
        self.before_handle(records)
        for record in records:
            place = where(record)
            with self._lock:
                left = self.fails.get(place, 0)
                if left:
                    self.fails[place] = left - 1
                elif self.undoes:
                    take_effect(partial(self.add, place))
                else:
                    self.effects.append(place)
            if left and self.names:
                raise PoisonRecord(record) from Bad(_short(record))
            if left:
                raise Bad(_short(record))

    def add(self, place: RecordPlace) -> None:
        self._pending.append(place)

    def commit(self, term: OpenTerm, ends: Mapping[Partition, int]) -> None:
        self.before_commit()
        told = " ".join(f"{_letter(each)}={end}" for each, end in sorted(ends.items()))
        if self.refused.intersection(self._pending):
            self.log.append(f"refuse {told}")
            raise EffectRefused(Bad("refused"))
        self.log.append(f"commit {told}")
        assert all(end > self.committed.get(each, -1) for each, end in ends.items()), (
            "committed backwards, or twice"
        )
        self.committed.update(ends)
        self.effects += self._pending
        self._pending = []

    def undo(self) -> None:
        self.log.append("undo")
        self._pending = []

    def send_dead_letter(self, term: OpenTerm, topic: str, letter: Message) -> None:
        dead = read_dead_letter(Record(topic, 0, 0, 0, letter.key, letter.value, letter.headers))
        self.log.append(
            f"dead letter {_letter(dead.origin)}{dead.offset} on {topic} after {dead.attempts}:"
            f" {dead.text}"
        )
        self.letters.append(letter)


def failing_at(
    errors: Iterable[BaseException], place: RecordPlace = (A, 1), *, names: bool = False
) -> Callable[[Sequence[Record]], Any]:
    """Raise one of the errors after the other, while there are some, naming the record or not."""
    left = iter(errors)

    def fail(handed: Sequence[Record]) -> None:
        for record in handed:
            if where(record) == place and (error := next(left, None)) is not None:
                if names:
                    raise PoisonRecord(record) from error
                raise error

    return fail


class FakeMarks:
    """Marks in memory; ``deaths`` as earlier processes left them. Careful up to, and without, the
    offset in ``until``.
    """

    def __init__(
        self,
        career: FakeCareer,
        until: Mapping[Partition, int],
        deaths: Mapping[RecordPlace, int] | None = None,
    ) -> None:
        self._log = career.log
        self._until = until
        self._next: dict[Partition, int] = {}
        self._deaths = dict(deaths or {})

    def is_careful(self, partition: Partition) -> bool:
        return self._next.get(partition, 0) < self._until.get(partition, 0)

    def before(self, term: Any, record: Record) -> int:
        self._log.append(f"mark {_short(record)}")
        return self._deaths.get(where(record), 0)

    def after(self, term: Any, record: Record) -> None:
        self._log.append(f"unmark {_short(record)}")
        self._next[where(record)[0]] = record.offset + 1


def a_handler(
    career: FakeCareer, on_error: object = "raise", *, delivery: str = "at_least_once", **more: Any
) -> BatchHandler:
    store = "zookeeper" if career.undoes else "kafka"
    return BatchHandler(
        HandlingContext(
            career="billing",
            handle=career.handle,
            decode=career.decode if career.undecodable else None,
            commit=career.commit,
            undo=career.undo,
            undoes=career.undoes,
            commits_first=delivery_of(delivery, store, "Billing") is DeliveryPromise.AT_MOST_ONCE,
            send_dead_letter=career.send_dead_letter,
            on_error=policy(on_error, "Billing"),
            **more,
        )
    )


def sorted_until_committed(log: list[str]) -> list[str]:
    """The log with what ran at the same time in order of partition."""
    first_commit = next(
        (at for at, line in enumerate(log) if not line.startswith("handle")), len(log)
    )
    return sorted(log[:first_commit]) + log[first_commit:]


def _letter(partition: Partition) -> str:
    return "ABC"[partition.number]


def _short(record: Record) -> str:
    return f"{'ABC'[record.partition]}{record.offset}"
