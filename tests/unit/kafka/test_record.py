"""A record and a batch as values: seven fields, whatever client read them."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.kafka.record import (
    FIELDS,
    Batch,
    Chained,
    Offset,
    Partition,
    Record,
    after,
    epoch_of,
    grouped,
    is_topic_name,
    size_of,
)

RECORD = Record("t", 1, 2, 3, b"key", b"value", [("h", b"x")], 7)
SEVEN = ("t", 1, 2, 3, b"key", b"value", [("h", b"x")])


def test_which_names_a_topic_may_have():
    assert all(map(is_topic_name, ["a", "A.b_c-9", "...", "a" * 249]))
    no_names = ["", ".", "..", "a b", "a/b", "ä", "a\n", "a" * 250, None, b"a", 7]
    assert [is_topic_name(name) for name in no_names] == [False] * len(no_names)


def test_an_offset_knows_the_epoch_of_the_record_before_it():
    assert (Offset(5), Offset(5).epoch, Offset(5, 0).epoch, Offset(5, 3).epoch) == (5, -1, 0, 3)
    assert (epoch_of(5), epoch_of(Offset(5, 3)), epoch_of(Offset(5))) == (-1, 3, -1)
    assert (after(RECORD), after(RECORD).epoch) == (3, 7)
    assert after(RECORD.replace(leader_epoch=None)).epoch == -1


def test_a_record_is_its_seven_fields_and_the_epoch_is_hidden():
    assert tuple(RECORD) == SEVEN
    assert (len(RECORD), list(RECORD.as_dict())) == (7, list(FIELDS))
    assert tuple(RECORD.as_dict().values()) == SEVEN
    assert RECORD.leader_epoch == 7
    assert RECORD.replace(leader_epoch=9) == RECORD
    assert not RECORD.replace(leader_epoch=9) != RECORD  # noqa: SIM202
    assert hash(RECORD) == hash(RECORD.replace(leader_epoch=9, value=b"other"))
    assert hash(RECORD) != hash(RECORD.replace(offset=9))
    assert all(RECORD.replace(**{name: "another"}) != RECORD for name in FIELDS)
    assert (RECORD == SEVEN, RECORD != SEVEN) == (False, True)
    assert Record("t", 1, 2, 3, None, None).headers == ()
    assert Record("t", 1, 2, 3, None, None).leader_epoch is None


def test_a_record_behaves_as_the_tuple_of_its_fields_and_is_copied_by_them():
    later = RECORD.replace(offset=9)
    assert (RECORD[0], RECORD[-1], RECORD[1:3]) == ("t", SEVEN[-1], (1, 2))
    assert ("t" in RECORD, 7 in RECORD, RECORD.index(2), RECORD.count(3)) == (True, False, 2, 1)
    compared = later > RECORD, later >= RECORD, later < RECORD, later <= RECORD
    assert compared == (True, True, False, False)
    assert (*SEVEN, "x") == RECORD + ("x",)  # noqa: RUF005 - it is the operator that is tried
    assert RECORD + later == (*SEVEN, *later)
    with pytest.raises(IndexError):
        _ = RECORD[7]
    assert pickle.loads(pickle.dumps(RECORD)) == copy.copy(RECORD) == RECORD


def test_a_record_says_where_it_lies_and_how_large_it_is():
    assert (RECORD.topic_partition, str(RECORD.topic_partition)) == (Partition("t", 1), "t-1")
    assert (RECORD.place, RECORD.size) == ("t-1@2", 8)
    assert RECORD.replace(key=None, value=5).size == 0
    assert RECORD.replace(topic="u").leader_epoch == 7


class Sized(list[Record]):
    size = 42


def test_the_size_of_records_is_that_of_keys_and_values():
    bare = RECORD.replace(key=None, value=None)
    assert size_of([RECORD, bare, RECORD.replace(key=None)]) == 8 + 5
    assert size_of([RECORD.replace(value=None)]) == 3
    assert size_of(Sized()) == 42


def test_a_batch_of_one_partition_is_its_records_and_of_more_they_follow_each_other():
    a, b = Partition("t", 0), Partition("t", 1)
    first, second = [RECORD], [RECORD.replace(offset=5), RECORD.replace(offset=6)]
    alone = Batch({a: first})
    assert alone.merged() is first
    both = Batch({a: first, b: second})
    assert list(both.merged()) == [*first, *second]
    assert isinstance(both.merged(), Chained)
    assert (len(alone), len(both), both.ends) == (1, 3, {a: 3, b: 7})
    assert len(Batch({})) == 0


def test_records_are_grouped_by_partition_in_their_order():
    rows = [Record("t", number, at, 0, None, b"") for at, number in enumerate((1, 0, 1))]
    expected = {Partition("t", 1): [rows[0], rows[2]], Partition("t", 0): [rows[1]]}
    assert grouped(iter(rows)).records == expected


PARTS = st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=4)


@given(PARTS, PARTS, st.integers(-20, 20), st.integers(-20, 20))
def test_parts_that_follow_each_other_are_one_sequence(parts, others, index, stop):
    flat, other = sum(parts, []), sum(others, [])  # noqa: RUF017
    chained: Any = Chained(parts)
    assert (len(chained), list(chained), repr(chained)) == (len(flat), flat, repr(flat))
    assert chained[index:stop] == flat[index:stop]
    assert (chained == flat, chained == Chained(others)) == (True, flat == other)
    assert (chained == other, chained != other) == (flat == other, flat != other)
    if -len(flat) <= index < len(flat):
        assert chained[index] == flat[index]
    else:
        with pytest.raises(IndexError, match=f"no element {index} of {len(flat)}"):
            _ = chained[index]


def test_what_is_no_sequence_is_not_equal_to_one():
    assert Chained([[1]]) != {1}
    assert Chained([[1]]) != 1
    assert Chained([]) == ()
    with pytest.raises(TypeError):
        hash(Chained([]))
