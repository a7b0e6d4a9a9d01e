"""Where the znodes of a key are: any key has a name, no two share one, and ZooKeeper takes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.coalescing.distributed.places import LONGEST, Place, encoded, key_of_slot, validated_root
from leaderq.errors import ConfigurationError
from leaderq.zookeeper.paths import validated_path

ANY_TEXT = st.text(st.characters(), max_size=300)  # lone surrogates, too
KEYS = st.one_of(ANY_TEXT, st.binary(max_size=300))


@given(KEYS)
def test_every_key_has_a_name_that_zookeeper_takes(key):
    place = Place.of("/root", key)
    token = place.new_token()
    for path in (place.slot(0), place.slot(1), place.token(token)):
        assert validated_path(path) == path
        assert path.isascii()
        assert len(path) < LONGEST + 50
    assert place.owns(token)
    assert key_of_slot(place.slot(1).rpartition("/")[2]) == place.name


@given(KEYS, KEYS)
def test_two_keys_never_share_a_name(one, other):
    assert (encoded(one) == encoded(other)) == (one == other)


@given(KEYS, KEYS)
def test_no_znode_of_one_key_is_taken_for_that_of_another(one, other):
    if one != other:
        ours, theirs = Place.of("/root", one), Place.of("/root", other)
        assert {ours.slot(0), ours.slot(1)}.isdisjoint({theirs.slot(0), theirs.slot(1)})
        assert not ours.owns(theirs.new_token())


def test_short_keys_can_be_read_by_operators():
    assert encoded("user-42") == "s-user-42"
    assert encoded("user:42/a~0") == "s-user%3A42%2Fa%7E0"
    assert encoded(b"\x00k") == "b-%00k"
    assert encoded("x" * 1000).startswith("S-")
    assert encoded("x" * 1000) != encoded("x" * 1001)


def test_the_longest_key_that_is_kept_whole_and_the_first_that_is_not():
    assert encoded("x" * LONGEST) == "s-" + "x" * LONGEST
    assert encoded("x" * (LONGEST + 1)).startswith("S-")


def test_bytes_in_other_clothes_are_the_same_key():
    assert encoded(b"k") == encoded(bytearray(b"k")) == encoded(memoryview(b"k"))


@pytest.mark.parametrize("key", [None, 1, 1.5, ("a", "b"), [b"a"]])
def test_a_key_that_is_neither_text_nor_bytes_is_refused_with_its_type(key):
    with pytest.raises(ConfigurationError, match=type(key).__name__):
        encoded(key)


@pytest.mark.parametrize("root", ["", "a", "/", "/a//b", "/a/.", None])
def test_a_root_that_is_no_place_for_slots_is_refused(root):
    with pytest.raises(ConfigurationError):
        validated_root(root)


def test_a_token_is_never_made_twice():
    place = Place.of("/root", "k")
    assert len({place.new_token() for _ in range(1000)}) == 1000
