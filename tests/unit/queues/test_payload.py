"""What a znode holds: Curator's own bytes, round trips, and that spoilt data is called corrupt and
nothing else.
"""

from __future__ import annotations

import gzip
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leaderq.errors import CorruptItem
from leaderq.queues.wire import payload
from leaderq.queues.wire.payload import (
    Note,
    Payload,
    decode,
    encode,
)

numbers = st.integers(1, 2**63)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
maybe = st.none() | text
notes = st.builds(
    Note,
    attempt=st.integers(0, 2**31),
    enqueued_ms=st.none() | numbers,
    not_before_ms=st.none() | st.integers(0, 2**63),
    reason=maybe,
    error=maybe,
    origin=maybe,
    died_ms=st.none() | numbers,
    raw=st.booleans(),
)
contents = st.lists(st.binary(max_size=300), max_size=5)


@pytest.mark.parametrize(
    ("items", "written"),
    [
        ([b"hello"], "00010001010000000568656c6c6f02"),
        ([b"a", b"b"], "0001000101000000016101000000016202"),
        ([b"a"], "0001000101000000016102"),
        ([b"a", b"bc"], "000100010100000001610100000002626302"),
        ([b""], "00010001010000000002"),
        ([], "0001000102"),
    ],
)
def test_data_is_what_curator_writes(items: list[bytes], written: str) -> None:
    assert encode(items).hex() == written
    assert decode(bytes.fromhex(written)) == Payload(items)
    assert len(encode(items)) == 5 + sum(5 + len(item) for item in items)


@given(items=contents, note=st.none() | notes, compress=st.booleans())
def test_everything_written_is_read_again(
    items: list[bytes], note: Note | None, compress: bool
) -> None:
    read = decode(encode(items, note, compress=compress))
    assert list(read.items) == items
    assert read.note == note


@given(items=contents, tail=st.binary())
def test_what_follows_the_end_is_ignored_if_it_is_not_ours(items: list[bytes], tail: bytes) -> None:
    assert list(decode(encode(items) + tail).items) == items


@pytest.mark.parametrize(
    "tail",
    [
        b"leaderq:",
        b"leaderq:[]",
        b"leaderq:7",
        b"leaderq:{",
        b"leaderq:\xff\xfe",
        b"leaderq:" + b"[" * 100_000,
        b"leaderq:" + b"9" * 10_000,
        b"LEADERQ:{}",
    ],
)
def test_a_note_that_is_none_is_none(tail: bytes) -> None:
    assert decode(encode([b"a"]) + tail) == Payload([b"a"])


# -- corrupt


@given(items=contents, data=st.data())
def test_data_that_ends_too_early_is_corrupt_wherever_it_ends(
    items: list[bytes], data: st.DataObject
) -> None:
    whole = encode(items)
    with pytest.raises(CorruptItem):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize(
    "items", [[], [b""], [b"a"], [b"\x02\x02\x02"], [b"abc", b"", b"\x01\x00\x00\x00\x00\x02"]]
)
@pytest.mark.parametrize("compress", [False, True])
def test_data_cut_at_any_byte_is_corrupt(items: list[bytes], compress: bool) -> None:
    whole = encode(items, compress=compress)
    for end in range(len(whole)):
        with pytest.raises(CorruptItem):
            decode(whole[:end])


@pytest.mark.parametrize(
    ("spoilt", "says"),
    [
        ("", "shorter than the shortest frame"),
        ("00010001", "shorter than the shortest frame"),
        ("0001000201000000016102", "begins with 00010002"),
        ("ffffffff01000000016102", "begins with ffffffff"),
        ("0001000103000000016102", "unknown code 0x03 at byte 4"),
        ("0001000100", "unknown code 0x00 at byte 4"),
        ("00010001010000000161ff02", "unknown code 0xff at byte 10"),
        ("0001000101ffffffff6102", "length -1 at byte 5"),
        ("0001000101800000006102", "length -2147483648 at byte 5"),
        ("00010001017fffffff6102", "length 2147483647 at byte 5 of an item, and 2 bytes follow"),
        ("0001000101000000036102", "length 3 at byte 5 of an item, and 2 bytes follow"),
        ("0001000101000000026102", "ends without the code 0x02"),
        ("00010001010000", "ends within the length at byte 5"),
        ("0001000101", "ends within the length at byte 5"),
        ("000100010100000000", "ends without the code 0x02"),
        ("000100010100000001", "length 1 at byte 5 of an item, and 0 bytes follow"),
        ("1f8b", "begins as gzip"),
        ("1f8b0800000000000003deadbeef", "begins as gzip"),
    ],
)
def test_a_corrupt_item_says_what_is_wrong_and_where(spoilt: str, says: str) -> None:
    with pytest.raises(CorruptItem, match=says):
        decode(bytes.fromhex(spoilt))


def test_a_member_that_would_fill_the_memory_is_corrupt() -> None:
    bomb = gzip.compress(encode([bytes(payload.MAX_PLAIN_BYTES)]))
    assert len(bomb) < 1_000_000
    with pytest.raises(CorruptItem, match="more than"):
        decode(bomb)


def test_what_java_compresses_is_read() -> None:
    """java.util.zip.GZIPOutputStream: no name, no time, an unknown system; 15 bytes of a single
    "hello".
    """
    member = gzip.compress(encode([b"hello"]), mtime=0)
    java = member[:8] + b"\x00\x00" + member[10:]
    assert decode(java) == Payload([b"hello"])


def only_corrupt(data: bytes) -> None:
    try:
        read = decode(data)
    except CorruptItem:
        return
    assert all(type(item) is bytes for item in read.items)


@given(st.binary())
@example(b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\x03\xff\xff")
@example(b"\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03name")
@example(b"\x1f\x8b\x07\x00\x00\x00\x00\x00\x00\x03")
def test_any_bytes_are_an_item_or_corrupt(data: bytes) -> None:
    only_corrupt(data)
    only_corrupt(b"\x1f\x8b" + data)
    only_corrupt(b"\x1f\x8b\x08" + data)
    only_corrupt(b"\x00\x01\x00\x01" + data)
    only_corrupt(b"\x00\x01\x00\x01\x02leaderq:" + data)


@given(
    items=contents,
    note=st.none() | notes,
    compress=st.booleans(),
    seed=st.randoms(use_true_random=False),
)
def test_an_item_with_some_bytes_changed_is_an_item_or_corrupt(
    items: list[bytes], note: Note | None, compress: bool, seed: random.Random
) -> None:
    spoilt = bytearray(encode(items, note, compress=compress))
    for _ in range(seed.randint(1, 4)):
        spoilt[seed.randrange(len(spoilt))] = seed.randrange(256)
    only_corrupt(bytes(spoilt))
