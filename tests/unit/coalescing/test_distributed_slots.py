"""The znodes of a key: any key has a name, no two share one; and where the slots leave somebody."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.coalescing.automaton import TrafficState
from leaderq.coalescing.distributed.slots import (
    LONGEST,
    KeyView,
    KeyZnodes,
    SlotHolder,
    SlotStanding,
    encoded,
    holder,
    judge,
    validated_root,
    view,
)
from leaderq.errors import ConfigurationError, ConnectionLost, NoNode
from leaderq.zookeeper import Stat
from leaderq.zookeeper.paths import validated_path

ANY_TEXT = st.text(st.characters(), max_size=300)  # lone surrogates, too
KEYS = st.one_of(ANY_TEXT, st.binary(max_size=300))


@given(KEYS)
def test_every_key_has_a_name_that_zookeeper_takes(key):
    place = KeyZnodes.of("/root", key)
    token = place.new_token()
    for path in (place.slot(0), place.slot(1), place.token(token)):
        assert validated_path(path) == path
        assert path.isascii()
        assert len(path) < LONGEST + 50
    assert place.owns(token)


@given(KEYS, KEYS)
def test_two_keys_never_share_a_name(one, other):
    assert (encoded(one) == encoded(other)) == (one == other)


@given(KEYS, KEYS)
def test_no_znode_of_one_key_is_taken_for_that_of_another(one, other):
    if one != other:
        ours, theirs = KeyZnodes.of("/root", one), KeyZnodes.of("/root", other)
        assert {ours.slot(0), ours.slot(1)}.isdisjoint({theirs.slot(0), theirs.slot(1)})
        assert not ours.owns(theirs.new_token())


@pytest.mark.parametrize("key", [None, 1, 1.5, ("a", "b"), [b"a"]])
def test_a_key_that_is_neither_text_nor_bytes_is_refused_with_its_type(key):
    with pytest.raises(ConfigurationError, match=type(key).__name__):
        encoded(key)


@pytest.mark.parametrize("root", ["", "a", "/", "/a//b", "/a/.", None])
def test_a_root_that_is_no_place_for_slots_is_refused(root):
    with pytest.raises(ConfigurationError):
        validated_root(root)


def at(slot: int, token: str, number: int) -> SlotHolder:
    return SlotHolder(slot, token, number, 1)


def read(token: str, number: int) -> tuple[bytes, Stat]:
    return token.encode(), Stat(number, number, 0, 0, 0, 0, 0, 7, 0, 0, number)


A, B = at(0, "a", 1), at(1, "b", 2)


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ((None, None, None), (SlotStanding.OUTSIDE, 0)),
        ((A, None, A), (SlotStanding.OUTSIDE, 1)),
        ((None, B, None), (SlotStanding.OUTSIDE, 0)),
        ((A, B, A), (SlotStanding.DECLINED, 0)),
        ((A, B, None), (SlotStanding.OUTSIDE, 0)),
        ((None, B, A), (SlotStanding.UNCLEAR, 0)),
        ((A, B, at(0, "c", 3)), (SlotStanding.UNCLEAR, 0)),
        ((at(0, "me", 1), None, at(0, "me", 1)), (SlotStanding.HEAD, 0)),
        ((at(0, "me", 1), B, at(0, "me", 1)), (SlotStanding.HEAD, 0)),
        ((at(0, "me", 3), B, at(0, "me", 3)), (SlotStanding.WAITS, 0)),
        ((A, at(1, "me", 2), A), (SlotStanding.WAITS, 1)),
        ((A, at(1, "me", 2), None), (SlotStanding.HEAD, 1)),
        ((A, at(1, "me", 2), at(0, "c", 3)), (SlotStanding.HEAD, 1)),
    ],
)
def test_where_somebody_stands(slots, expected):
    assert judge("me", *slots) == expected


def test_the_older_slot_is_the_heads():
    assert view([A, B]) == view([B, A]) == KeyView(A, B)
    assert view([None, None]).state is TrafficState.INIT
    assert view([None, B]) == KeyView(B, None)
    assert view([None, B]).state is TrafficState.PROCESS
    assert view([A, B]).state is TrafficState.BLOCK


def test_a_slot_is_read_from_what_zookeeper_gave():
    assert holder(1, read("b", 5)) == SlotHolder(1, "b", 5, 7)
    assert holder(1, NoNode("x")) is None
    with pytest.raises(ConnectionLost):
        holder(1, ConnectionLost("x"))
