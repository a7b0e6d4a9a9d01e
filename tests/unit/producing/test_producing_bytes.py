"""Requests, journaled requests and frames as bytes."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.errors import ConfigurationError, CorruptRecord
from leaderq.producing import PLAIN, Packed, pack_frame, unpack_frame
from leaderq.producing.envelope import opened, sealed
from leaderq.producing.measure import measured

simple = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
keys = st.text() | st.binary() | st.integers() | st.booleans() | st.none()
plain = st.recursive(
    simple, lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(keys, inner), max_leaves=20
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types: 1, 1.0 and True are equal in Python."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return same(list(one), list(other)) and same(list(one.values()), list(other.values()))
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@given(plain)
def test_a_plain_value_comes_back_as_it_was(value: Any) -> None:
    assert same(PLAIN.deserialize(PLAIN.serialize(value)), value)


@given(st.binary(max_size=60))
def test_other_bytes_are_a_value_or_are_refused_and_nothing_else(data: bytes) -> None:
    try:
        value = PLAIN.deserialize(data)
    except CorruptRecord:
        return
    assert PLAIN.deserialize(PLAIN.serialize(value)) == value or value != value


@given(st.binary(), st.binary())
def test_a_pair_of_bytes_has_a_letter_of_its_own_and_comes_back(key: bytes, value: bytes) -> None:
    data = PLAIN.serialize((key, value))
    assert data[:1] == b"P"
    assert PLAIN.deserialize(data) == (key, value)


def test_a_named_tuple_comes_back_as_a_tuple() -> None:
    pair = namedtuple("pair", "key value")
    assert PLAIN.deserialize(PLAIN.serialize(pair(b"k", None))) == (b"k", None)


def test_what_is_not_plain_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigurationError, match=r"of type object .* codec"):
        PLAIN.serialize([object()])


@given(st.binary(), st.floats(min_value=0, max_value=1e10))
def test_an_envelope_gives_back_request_and_expiry(request: bytes, expires_at: float) -> None:
    assert opened(sealed(request, expires_at)) == (request, expires_at)


def test_an_envelope_of_somebody_else_is_refused() -> None:
    for data in (b"", b"\x01", b"\x02" + bytes(8)):
        with pytest.raises(CorruptRecord):
            opened(data)


messages = st.builds(
    Packed,
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=50),
    headers=st.lists(st.tuples(st.text(max_size=8), st.binary(max_size=8)), max_size=3),
    timestamp_ms=st.integers(-1, 2**60),
)


@given(st.lists(messages, max_size=20))
def test_a_frame_gives_back_its_messages_and_has_the_size_foretold(given_: list[Packed]) -> None:
    frame = pack_frame(given_)
    assert unpack_frame(frame) == given_
    assert len(frame) == 12 + sum(message.frame_bytes for message in given_)


@given(st.lists(messages, min_size=1, max_size=5), st.data())
def test_no_spoilt_byte_of_a_frame_goes_unnoticed(given_: list[Packed], data: st.DataObject) -> None:
    frame = bytearray(pack_frame(given_))
    at = data.draw(st.integers(0, len(frame) - 1))
    frame[at] ^= data.draw(st.integers(1, 255))
    with pytest.raises(CorruptRecord):
        unpack_frame(bytes(frame))


@given(st.lists(messages, min_size=1, max_size=5), st.data())
def test_a_frame_cut_off_is_refused(given_: list[Packed], data: st.DataObject) -> None:
    frame = pack_frame(given_)
    with pytest.raises(CorruptRecord):
        unpack_frame(frame[: data.draw(st.integers(0, len(frame) - 1))])


def test_sizes_are_those_of_the_parts() -> None:
    assert measured(b"12345") == 5
    assert measured((b"123", b"45678")) == 8 + 16
    assert measured({"ab": [b"c"]}) == 2 + 1 + 8
    assert measured(object()) > 0
