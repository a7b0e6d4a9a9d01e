"""Reading letters: from a place to the end as it was when reading began, without a broker."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from leaderq.kafka.dead_letters.topic import DeadLetterReader
from leaderq.kafka.record import Partition, Record

A, B = Partition("dead", 0), Partition("dead", 1)


def row(where: Partition, offset: int) -> Record:
    return Record(where.topic, where.number, offset, 0, b"k", b"v")


class Reader(DeadLetterReader):
    _consumer: Any = None


def reader(*polls: dict[Partition, list[Record]]) -> Any:
    made: Any = object.__new__(Reader)
    made.topic, made.starts, made.ends = "dead", {0: 2, 1: 0}, {0: 5, 1: 0}
    left, at = list(polls), {A: 0, B: 0}
    made.paused = []
    made._consumer = SimpleNamespace(pause=lambda *where: made.paused.extend(where))
    made.seek = lambda begins, paused: at.update(begins)

    def poll(timeout_s: float, most: int) -> dict[Partition, list[Record]]:
        found = left.pop(0)
        for where, rows in found.items():
            at[where] = rows[-1].offset + 1
        return found

    made.poll, made.positions = poll, lambda: dict(at)
    return made


def offsets(rows: Any) -> list[int]:
    return [record.offset for record in rows]


def test_letters_that_came_after_reading_began_are_not_read() -> None:
    one = reader({A: [row(A, 2), row(A, 3)]}, {A: [row(A, 4), row(A, 5), row(A, 6)]})
    assert offsets(one.read()) == [2, 3, 4]
    assert one.paused == [A]


def test_letters_are_read_from_a_place_on_and_none_from_the_end_on() -> None:
    assert offsets(reader({A: [row(A, 4)]}).read({0: 4})) == [4]
    assert offsets(reader().read({0: 5})) == []
    assert offsets(reader({A: [row(A, 2), row(A, 4)]}).read({0: 1})) == [2, 4]
