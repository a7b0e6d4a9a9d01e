"""What is claimed next is read while this is claimed, as long as that is of use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from leaderq.engine.reading_ahead import RowsAhead, result_of
from leaderq.errors import ConnectionLost
from leaderq.threads import primitives


class FakeReader:
    """Answers at once, or when :meth:`answer` is called."""

    most = 10

    def __init__(self, *, is_late: bool = False) -> None:
        self.asked: list[list[str]] = []
        self._late: list[primitives.Future[list[Any]]] = []
        self._is_late = is_late

    def read(self, names: Sequence[str]) -> primitives.Future[list[Any]]:
        answer: primitives.Future[list[Any]] = primitives.Future()
        self.asked.append(list(names))
        self._late.append(answer)
        if not self._is_late:
            self.answer()
        return answer

    def answer(self) -> None:
        self._late.pop(0).set_result([(name.upper(), 0, 0) for name in self.asked[-1]])


def test_what_was_read_ahead_is_not_read_again_and_counts_once() -> None:
    reader = FakeReader()
    one = RowsAhead(reader, lambda: False)
    one.begin(["a", "b"])
    assert one.read(["b", "c"]) == {"b": ("B", 0, 0), "c": ("C", 0, 0)}
    one.read(["b"])
    assert reader.asked == [["a", "b"], ["c"], ["b"]]


def test_an_answer_that_comes_after_names_were_forgotten_is_not_used() -> None:
    reader = FakeReader(is_late=True)
    one = RowsAhead(reader, lambda: False)
    one.begin(["a"])
    one.forget()
    reader.answer()
    reader._is_late = False
    one.read(["a"])
    assert reader.asked == [["a"], ["a"]]


def test_nothing_more_is_read_ahead_while_that_is_under_way_or_enough_is_there() -> None:
    reader = FakeReader(is_late=True)
    one = RowsAhead(reader, lambda: False)
    assert one.room == reader.most
    one.begin([*"abcde"])
    assert one.room == 0
    reader.answer()
    assert one.room == 0, "half of what can be read at a time"
    one.read(["a"])
    assert one.room == reader.most
    assert reader.asked == [[*"abcde"]]


def test_what_has_not_come_at_the_end_is_not_waited_for_and_may_still_come() -> None:
    late: primitives.Future[int] = primitives.Future()
    with pytest.raises(ConnectionLost):
        result_of(late, lambda: True)
    late.set_result(5)
    begun: primitives.Future[int] = primitives.Future()
    looks: list[int] = []

    def is_stopped() -> bool:
        looks.append(1)
        begun.set_result(7)
        return True

    assert (result_of(begun, is_stopped), looks) == (7, [1])
