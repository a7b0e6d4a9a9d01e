"""``order = "key"``: each key in order, several at a time; one that fails repeats no other."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pytest
from fake_career import A, B, C, FakeCareer, FakeMarks, a_handler, open_term, where
from test_handling_laws import BY_KEY, Feed, OneByOne

from leaderq.errors import Reason
from leaderq.kafka import skip
from leaderq.kafka.clients.consumer import BatchLost
from leaderq.kafka.handling.batch_handler import BatchWork
from leaderq.kafka.handling.chains import InHand, by_records
from leaderq.kafka.handling.context import RecordOrder
from leaderq.kafka.record import Batch, Partition, Record

pytestmark = pytest.mark.usefixtures("short_pauses")


def keyed(where: Partition, keys: str, first: int = 0) -> list[Record]:
    """Records with these keys; ``-``: without one."""
    return [
        Record(*where, first + at, 0, None if key == "-" else key.encode(), b"")
        for at, key in enumerate(keys)
    ]


def batch(**keys: str) -> Batch:
    named = {"A": A, "B": B, "C": C}
    return Batch({named[name]: keyed(named[name], each) for name, each in keys.items()})


@contextmanager
def by_key(career: FakeCareer, on_error: object = "raise", **more: Any) -> Iterator[Any]:
    with closing(a_handler(career, on_error, **{**BY_KEY, **more})) as handler:
        yield handler


def in_hand(rows: Sequence[Record]) -> InHand:
    hand = InHand()
    hand.add(Batch({}), by_records(rows, RecordOrder.KEY))
    return hand


def begun(hand: InHand) -> Iterator[list[Any]]:
    while chain := hand.begin(lambda _piece: True):
        yield [where(piece.records[0]) for piece in chain.pieces]


def test_a_chain_has_the_records_of_one_key_of_one_partition_and_the_longest_comes_first():
    found = list(begun(in_hand([*keyed(A, "abca-"), *keyed(B, "aa-a")])))
    assert found[0] == [(B, 0), (B, 1), (B, 3)]
    assert found[1] == [(A, 0), (A, 3)]
    assert sorted(found[2:]) == [[(A, 1)], [(A, 2)], [(A, 4)], [(B, 2)]]


def test_what_comes_later_joins_its_chain_and_waits_for_what_came_before():
    hand = in_hand(keyed(A, "ab"))
    first = hand.begin(lambda _piece: True)
    hand.add(Batch({}), by_records(keyed(A, "acccc", first=2), RecordOrder.KEY))
    assert first is not None
    assert [piece.records[0].offset for piece in first.pieces] == [0, 2]
    hand.advance(first.pieces[0])  # offset 2 has come with the second ones
    assert [each[0] for each in begun(hand)] == [(A, 1), (A, 3), (A, 2)]


def test_when_the_term_is_to_end_only_records_in_front_of_a_begun_one_are_handled():
    career, term, last = OneByOne(), open_term(7), threading.Event()

    def handle(rows: Sequence[Record]) -> None:
        offset = rows[0].offset
        if offset == 2:
            term.wind_up(Reason.STEP_DOWN)
            last.set()
        assert last.wait(30)

    career.before_handle = handle
    with by_key(career, order=RecordOrder.NONE) as handler:
        assert not handler.work(batch(A="------"), term)
    assert sorted(career.effects) == [(A, 0), (A, 1), (A, 2)]
    assert career.committed == {A: 3}


def test_a_slow_record_holds_up_its_key_only_until_as_many_as_may_be_are_in_hand():
    career, found = OneByOne(), batch(A="sabcdefghijklmnop" * 2)
    others: list[int] = []
    is_full = threading.Event()

    def handle(rows: Sequence[Record]) -> None:
        (record,) = rows
        assert record.offset < career.committed.get(A, 0) + 6, "more in hand than may be"
        if record.offset == 0:
            assert is_full.wait(30)
            return
        others.append(record.offset)
        if len(others) == 5:
            is_full.set()

    career.before_handle = handle
    feed = Feed(career, found, 3, 6)
    with by_key(career, more=feed.more) as handler:
        while (left := feed.first()) is not None:
            assert handler.work(left, open_term(7))
    assert career.committed == found.ends
    assert sorted(others[:5]) == [1, 2, 3, 4, 5]


def test_after_an_unclean_end_nothing_is_committed_before_the_first_batch_is_done():
    """Else a record that kills would be met at another offset each time, and never be found."""
    career, found = OneByOne(), batch(A="abc")
    more = {"more": lambda *_: None, "marks": FakeMarks(career, {})}
    with by_key(career, skip(), **more) as handler:
        unclean = open_term(8, unclean=True)
        assert BatchWork(handler, found, open_term(7)).slides
        first = BatchWork(handler, found, unclean)
        assert not first.slides
        assert first.run()
        assert career.log[-1] == "commit A=3" and len(career.log) == 4
        assert BatchWork(handler, found, unclean).slides
        assert not BatchWork(handler, found, open_term(9, unclean=True)).slides


def test_when_the_batch_is_lost_what_is_in_hand_is_finished_and_nothing_is_begun(monkeypatch):
    career, stopped, stop = OneByOne(), threading.Event(), BatchWork.stop
    monkeypatch.setattr(BatchWork, "stop", lambda self: [stop(self), stopped.set()])

    def more(*_: Any) -> Batch | None:
        raise BatchLost("moved")

    career.before_handle = lambda _rows: stopped.wait(30) and None
    with by_key(career, more=more) as handler, pytest.raises(BatchLost):
        handler.work(batch(A="abcdefgh"), open_term(7))
    assert len(career.effects) <= 3 and career.committed == {}


def test_where_records_may_kill_the_process_they_are_handled_in_order_of_partitions():
    career = OneByOne()
    with by_key(career, skip(), marks=FakeMarks(career, {A: 2})) as handler:
        assert handler.work(batch(A="ab"), open_term(7))
    assert career.log[:3] == ["mark A0", "handle A0", "commit A=1"]


def test_in_an_outage_all_keys_wait_together_and_none_is_passed_over():
    left = Counter(dict.fromkeys([(A, 0), (A, 1), (B, 0)], 3))
    held: list[str | None] = []

    def fail(rows: Sequence[Record]) -> None:
        left[where(rows[0])] -= 1
        if left[where(rows[0])] >= 0:
            raise ConnectionRefusedError

    career = OneByOne()
    career.before_handle = fail
    with by_key(career, skip(), on_held_up=held.append) as handler:
        assert handler.work(batch(A="ab", B="a"), open_term(7))
    assert len(career.effects) == 3
    assert [each is None for each in held] == [False, False, False, True]
