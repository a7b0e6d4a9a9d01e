"""What a letter says of a record that could not be handled, and that whoever reads it learns the
same.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.errors import CorruptRecord
from leaderq.kafka.dead_letters import format as dead_letters
from leaderq.kafka.dead_letters.format import (
    MAX_TEXT_BYTES,
    DeadLetter,
    NewDeadLetter,
    new_dead_letter,
    read_dead_letter,
)
from leaderq.kafka.record import Partition, Record

AT_MS = 1_790_000_000_123
RECORD = Record(
    "orders", 3, 41, 1_780_000_000_000, b"key", b"\xff\x00value", (("trace", b"a"), ("trace", b"b"))
)


class UnknownAccountError(Exception):
    pass


def written(
    record: Record = RECORD, error: BaseException | None = None, **said: object
) -> NewDeadLetter:
    given = {"attempts": 4, "term": 17, "career": "billing", "at_ms": AT_MS, **said}
    return new_dead_letter(record, error or UnknownAccountError("no account 7"), **given)  # type: ignore[arg-type]


def found(letter: NewDeadLetter, topic: str = "billing-dead", offset: int = 5) -> Record:
    return Record(topic, 0, offset, letter.timestamp_ms, letter.key, letter.value, letter.headers)


def read(letter: NewDeadLetter) -> DeadLetter:
    return read_dead_letter(found(letter))


def test_key_value_and_headers_are_kept_byte_for_byte_and_the_letter_bears_the_time_of_death():
    letter = written()
    assert (letter.key, letter.value, letter.timestamp_ms) == (RECORD.key, RECORD.value, AT_MS)
    assert letter.headers[:2] == list(RECORD.headers)


def test_a_letter_says_which_record_died_where_when_and_of_what():
    dead = read(written())
    assert (dead.origin, dead.offset, dead.timestamp_ms) == (
        Partition("orders", 3),
        41,
        RECORD.timestamp_ms,
    )
    assert dead.error == f"{__name__}.UnknownAccountError"
    assert (dead.text, dead.where) == ("no account 7", "")
    assert (dead.attempts, dead.term, dead.career, dead.at_ms, dead.times) == (
        4,
        17,
        "billing",
        AT_MS,
        1,
    )
    assert dead.headers == list(RECORD.headers)
    assert dead.place == "billing-dead-0@5"


@given(text=st.text(alphabet=st.characters(exclude_categories=()), max_size=3000))
def test_the_errors_text_is_bounded_and_cut_between_characters(text):
    said = dict(written(error=ValueError(text)).headers).get("leaderq-dead-text", b"")
    assert len(said) <= MAX_TEXT_BYTES
    assert (
        said.decode()[:-1]
        == text.encode("utf-8", "backslashreplace").decode()[: len(said.decode()) - 1]
    )


@given(
    key=st.none() | st.binary(),
    value=st.none() | st.binary(),
    headers=st.lists(st.tuples(st.text(), st.binary())),
    numbers=st.tuples(*[st.integers(0, 2**31)] * 4),
    stamp=st.integers(-1, 2**41),
)
def test_whatever_is_written_is_read(key, value, headers, numbers, stamp):
    partition, offset, attempts, term = numbers
    record = Record("t", partition, offset, stamp, key, value, headers)
    dead = read(written(record, attempts=attempts, term=term))
    assert (dead.origin, dead.offset, dead.timestamp_ms) == (
        Partition("t", partition),
        offset,
        stamp,
    )
    assert (dead.record.key, dead.record.value, dead.attempts, dead.term) == (
        key,
        value,
        attempts,
        term,
    )
    assert dead.headers == dead_letters.own_headers(headers)


def test_a_letter_that_dies_again_replaces_what_was_said_and_counts():
    again = read(
        new_dead_letter(
            found(written()), KeyError("x"), attempts=1, term=18, career="other", at_ms=AT_MS + 1
        )
    )
    assert (again.origin, again.offset, again.career, again.times) == (
        Partition("billing-dead", 0),
        5,
        "other",
        2,
    )
    assert again.headers == list(RECORD.headers)
    assert len(again.record.headers) == len(written().headers)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("trace", b"a")],
        [("leaderq-dead-topic", b"orders")],
        [
            ("leaderq-dead-topic", b"orders"),
            ("leaderq-dead-partition", b"x"),
            ("leaderq-dead-offset", b"1"),
        ],
        [
            ("leaderq-dead-topic", b""),
            ("leaderq-dead-partition", b"0"),
            ("leaderq-dead-offset", b"1"),
        ],
        [
            ("leaderq-dead-topic", b"orders"),
            ("leaderq-dead-partition", None),
            ("leaderq-dead-offset", b"1"),
        ],
    ],
)
def test_a_record_that_is_no_letter_is_refused_with_its_place(headers):
    with pytest.raises(CorruptRecord, match="offset 9 of d-2 is not a dead letter of leaderq"):
        read_dead_letter(Record("d", 2, 9, 0, None, b"v", headers))


@given(
    headers=st.lists(
        st.tuples(
            st.sampled_from(["topic", "partition", "offset", "at", "times", "term"]), st.binary()
        )
    )
)
def test_whatever_headers_a_stranger_writes_they_are_read_or_refused(headers):
    record = Record(
        "d", 2, 9, 0, None, b"v", [(f"leaderq-dead-{name}", value) for name, value in headers]
    )
    try:
        read_dead_letter(record)
    except CorruptRecord:
        pass
