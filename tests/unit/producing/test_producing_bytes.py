"""Requests, and journaled requests, as bytes."""

from __future__ import annotations

import os
import pickle
import sys
from collections import OrderedDict, namedtuple
from enum import Enum, IntFlag
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.errors import ConfigurationError, CorruptRecord
from leaderq.producing import PLAIN
from leaderq.producing.codec import PlainCodec, is_sure
from leaderq.producing.request import BufferedRequest, measured, require_hash

keys = st.text() | st.binary() | st.integers() | st.booleans() | st.none()
simple = keys | st.floats(allow_nan=False)
plain = st.recursive(
    simple,
    lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(keys, inner),
    max_leaves=20,
)


class Runs:
    """What runs code when it is unpickled."""

    ran: ClassVar[list[str]] = []

    def __reduce__(self) -> Any:
        return Runs.ran.append, ("ran",)


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
def test_a_plain_value_comes_back_as_it_was(value):
    assert same(PLAIN.deserialize(PLAIN.serialize(value)), value)


@pytest.mark.parametrize(
    ("value", "sure"),
    [
        ((b"k", "v", 1, 0.5, None, True), True),
        (b"v", True),
        ((b"k", [1]), False),  # it may change before it is written
        (namedtuple("pair", "key value")(b"k", b"v"), False),
    ],
)
def test_a_codec_need_not_be_asked_about_what_it_always_has_bytes_for(value, sure):
    assert is_sure(PLAIN, value) is sure
    assert not is_sure(PlainCodec(), value)
    if sure:
        assert same(PLAIN.deserialize(PLAIN.serialize(value)), value)


@given(st.binary(max_size=60))
def test_other_bytes_are_a_value_or_are_refused_and_nothing_else(data):
    try:
        value = PLAIN.deserialize(data)
    except CorruptRecord:
        return
    assert PLAIN.deserialize(PLAIN.serialize(value)) == value or value != value


@pytest.mark.parametrize(
    "data", [pickle.dumps(os.system), pickle.dumps(Runs()), PLAIN.serialize(1) + b"."]
)
def test_what_names_a_class_or_a_function_is_refused_and_not_run(data):
    with pytest.raises(CorruptRecord):
        PLAIN.deserialize(data)
    assert not Runs.ran


class Colour(str, Enum):
    RED = "red"


def test_subclasses_come_back_as_the_plain_type():
    pair = namedtuple("pair", "key value")(b"k", None)
    value = [Colour.RED, OrderedDict(a=1), IntFlag("Flag", "A").A, memoryview(b"x"), pair]
    back = PLAIN.deserialize(PLAIN.serialize(value))
    assert same(back, ["red", {"a": 1}, 1, b"x", (b"k", None)])


def test_what_is_not_plain_is_refused_with_a_remedy():
    with pytest.raises(ConfigurationError, match=r"of type object .* codec"):
        PLAIN.serialize([object()])


def test_sizes_are_those_of_the_parts():
    for simple in (b"12345", bytearray(b"12345"), "12345"):
        assert measured(simple) == 5
    for pair in (tuple, list, namedtuple("pair", "key value")._make):
        assert measured(pair([b"123", "45678"])) == 8 + 16
    assert measured({"ab": [b"c"], b"d": ""}) == 2 + 1 + 8 + 1
    assert measured(5) == sys.getsizeof(5)


def test_a_request_expires_at_its_deadline_and_not_before():
    one = BufferedRequest(b"x", 1, 5.0)
    assert not one.is_expired(1e9)
    one.deadline = 7.0
    assert [one.is_expired(now) for now in (6.9, 7.0, 7.1)] == [False, True, True]
    assert (one.output, one.count, one.size, one.since_s, one.seq) == (b"x", 1, 1, 5.0, 0)
    assert (one.is_unwritable, one.attempts) == (False, 0)
    assert one.split() == [one]


async def later() -> None:
    pass


def test_a_key_has_a_hash_and_is_there_already():
    require_hash(("a", 1))
    with pytest.raises(ConfigurationError, match=r"returned a list .* which has no hash"):
        require_hash(["a"])
    coming = later()
    with pytest.raises(ConfigurationError, match="key"):
        require_hash(coming)
    coming.close()
