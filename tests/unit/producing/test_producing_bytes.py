"""Requests, and journaled requests, as bytes."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict, namedtuple
from enum import Enum, IntFlag
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.errors import ConfigurationError, CorruptRecord
from leaderq.producing import PLAIN
from leaderq.producing.codec import PlainCodec, is_sure
from leaderq.producing.request import measured

simple = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
)
keys = st.text() | st.binary() | st.integers() | st.booleans() | st.none()
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
def test_a_plain_value_comes_back_as_it_was(value: Any) -> None:
    assert same(PLAIN.deserialize(PLAIN.serialize(value)), value)


@pytest.mark.parametrize(
    ("value", "sure"),
    [
        ((b"k", "v", 1, 0.5, None, True), True),
        (b"v", True),
        ((b"k", [1]), False),  # it may change before it is written
        ([b"k"], False),
        ((b"k", object()), False),
        (namedtuple("pair", "key value")(b"k", object()), False),
    ],
)
def test_a_codec_need_not_be_asked_about_what_it_always_has_bytes_for(
    value: Any, sure: bool
) -> None:
    assert is_sure(PLAIN, value) is sure
    assert not is_sure(PlainCodec(), value)
    if sure:
        assert same(PLAIN.deserialize(PLAIN.serialize(value)), value)


@given(st.binary(max_size=60))
def test_other_bytes_are_a_value_or_are_refused_and_nothing_else(data: bytes) -> None:
    try:
        value = PLAIN.deserialize(data)
    except CorruptRecord:
        return
    assert PLAIN.deserialize(PLAIN.serialize(value)) == value or value != value


@pytest.mark.parametrize(
    "data", [pickle.dumps(os.system), pickle.dumps(Runs()), PLAIN.serialize(1) + b"."]
)
def test_what_names_a_class_or_a_function_is_refused_and_not_run(data: bytes) -> None:
    with pytest.raises(CorruptRecord):
        PLAIN.deserialize(data)
    assert not Runs.ran


class Colour(str, Enum):
    RED = "red"


def test_subclasses_come_back_as_the_plain_type() -> None:
    value = [Colour.RED, OrderedDict(a=1), IntFlag("Flag", "A").A, memoryview(b"x")]
    back = PLAIN.deserialize(PLAIN.serialize(value))
    assert same(back, ["red", {"a": 1}, 1, b"x"])


def test_a_named_tuple_comes_back_as_a_tuple() -> None:
    pair = namedtuple("pair", "key value")
    assert PLAIN.deserialize(PLAIN.serialize(pair(b"k", None))) == (b"k", None)


def test_what_is_not_plain_is_refused_with_a_remedy() -> None:
    with pytest.raises(ConfigurationError, match=r"of type object .* codec"):
        PLAIN.serialize([object()])


def test_sizes_are_those_of_the_parts() -> None:
    assert measured(b"12345") == 5
    assert measured((b"123", b"45678")) == 8 + 16
    assert measured({"ab": [b"c"]}) == 2 + 1 + 8
    assert measured(object()) > 0
