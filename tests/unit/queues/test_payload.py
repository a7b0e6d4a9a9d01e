"""What a znode holds: Curator's own bytes; frames and paths at the edges of their ranges."""

from __future__ import annotations

import gzip
import random
from array import array
from contextlib import suppress
from dataclasses import astuple
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leaderq.base.arguments import LAST_MS
from leaderq.engine.members import Membership
from leaderq.engine.serializers import unchanging
from leaderq.errors import ConfigurationError, CorruptItem, NoNode, NoPermission
from leaderq.queues.consumers import ErrorMode, QueueOptions
from leaderq.queues.consuming.consumption import ItemWorkers
from leaderq.queues.consuming.items import Claim, ItemOutcome, released
from leaderq.queues.consuming.members import DeathRecords
from leaderq.queues.wire import payload as payloads
from leaderq.queues.wire.names import QueueKind, kind_of, sort_key
from leaderq.queues.wire.payload import Note, Payload, compressed, decode, encode, is_compressed
from leaderq.queues.wire.znodes import QueuePaths, explained, wants_pause
from leaderq.zookeeper import Create

numbers = st.integers(1, LAST_MS)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
maybe = st.none() | text
notes = st.builds(
    Note,
    attempt=st.integers(0, 2**31),
    enqueued_ms=st.none() | numbers,
    not_before_ms=st.none() | st.integers(0, LAST_MS),
    **dict.fromkeys(("reason", "error", "origin", "trace"), maybe),
    died_ms=st.none() | numbers,
    raw=st.booleans(),
)
contents = st.lists(st.binary(max_size=300), max_size=5)


@pytest.mark.parametrize(
    ("items", "written"),
    [
        ([b"hello"], "00010001010000000568656c6c6f02"),
        ([b"a", b"bc"], "000100010100000001610100000002626302"),
        ([b""], "00010001010000000002"),
        ([], "0001000102"),
    ],
)
def test_data_is_what_curator_writes(items: list[bytes], written: str) -> None:
    assert encode(items).hex() == written
    assert decode(bytes.fromhex(written)) == Payload(items)


@given(items=contents, note=st.none() | notes, compress=st.booleans())
def test_everything_written_is_read_again(items, note, compress):
    read = decode(encode(items, note, compress=compress))
    assert list(read.items) == items
    assert read.note == note


@given(items=contents, tail=st.binary())
def test_what_follows_the_end_is_ignored_if_it_is_not_ours(items: list[bytes], tail: bytes) -> None:
    assert list(decode(encode(items) + tail).items) == items


@pytest.mark.parametrize("said", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b"9" * 10_000])
def test_a_note_that_is_none_is_none(said: bytes) -> None:
    assert decode(encode([b"a"]) + b"leaderq:" + said) == Payload([b"a"])


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
        ("0001000103000000016102", "unknown code 0x03 at byte 4"),
        ("00010001010000000161ff02", "unknown code 0xff at byte 10"),
        ("0001000101ffffffff6102", "length -1 at byte 5"),
        ("0001000101000000036102", "length 3 at byte 5 of an item, and 2 bytes follow"),
        ("0001000101000000026102", "ends without the code 0x02"),
        ("00010001010000", "ends within the length at byte 5"),
        ("000100010100000000", "ends without the code 0x02"),
        ("000100010100000001", "length 1 at byte 5 of an item, and 0 bytes follow"),
        ("1f8b", "begins as gzip"),
    ],
)
def test_a_corrupt_item_says_what_is_wrong_and_where(spoilt: str, says: str) -> None:
    with pytest.raises(CorruptItem, match=says):
        decode(bytes.fromhex(spoilt))


def test_what_java_compresses_is_read() -> None:
    """java.util.zip.GZIPOutputStream: no name, no time, an unknown system; 15 bytes of a single
    "hello".
    """
    member = gzip.compress(encode([b"hello"]), mtime=0)
    java = member[:8] + b"\x00\x00" + member[10:]
    assert decode(java) == Payload([b"hello"])


@given(st.binary())
@example(b"\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\x03\xff\xff")
@example(b"\x1f\x8b\x08\x08\x00\x00\x00\x00\x00\x03name")
@example(b"\x1f\x8b\x07\x00\x00\x00\x00\x00\x00\x03")
def test_any_bytes_are_an_item_or_corrupt(data: bytes) -> None:
    ours = b"\x00\x01\x00\x01"
    for before in (b"", b"\x1f\x8b", b"\x1f\x8b\x08", ours, ours + b"\x02leaderq:"):
        with suppress(CorruptItem):
            assert all(type(item) is bytes for item in decode(before + data).items)


def test_items_of_a_simple_queue_and_of_another_are_not_of_one_kind() -> None:
    with pytest.raises(ConfigurationError, match="say which kind"):
        kind_of(["qn-0000000001", "queue-0000000001"])


def test_items_of_one_due_time_go_by_their_numbers_whatever_those_are() -> None:
    numbers = ["-2147483648", "-000000001", "0000000000", "2147483647"]
    dues = (5, 6, 0xFFFFFFFFFF, 0x10000000000)  # the last two go by time and not as text
    names = [f"queue-|{due:08X}|{number}" for due in dues for number in numbers]
    assert sorted(names, key=sort_key(QueueKind.DELAY)) == names
    key = sort_key(QueueKind.DELAY)
    assert key("queue-|00000005|9999999999") == key("queue-|00000005|2147483647")
    assert key("queue-|00000005|-9999999999") == key("queue-|00000005|-2147483648")
    assert key("queue-|00000005|-2147483648") + 1 == key("queue-|00000005|-2147483647")
    assert key("queue-|00000006|-2147483648") - key("queue-|00000005|-2147483648") == 2**32
    names = ["qn-0000000001", "qn-9223372036854775807", "qn-x"]
    assert sorted(names, key=sort_key(QueueKind.SIMPLE)) == names


def test_a_note_keeps_two_thousand_characters_of_an_error() -> None:
    assert payloads.MAX_TEXT == 2000
    read = Note.read(Note(error="x" * 2001).packed())
    assert read is not None
    assert read.error == "x" * 2000
    assert Note(attempt=1).packed() == b'leaderq:{"attempt":1}'
    assert Note(error="\u00e4").packed() == 'leaderq:{"error":"\u00e4"}'.encode()
    assert astuple(Note()) == (0, *[None] * 7, False)


def test_compressed_bytes_are_those_of_one_gzip_member_at_time_zero() -> None:
    assert compressed(b"abc") == gzip.compress(b"abc", mtime=0)
    assert gzip.decompress(compressed(b"abc")) == b"abc"
    assert (is_compressed(compressed(b"")), is_compressed(b"x")) == (True, False)


def test_what_is_repeated_far_behind_is_decompressed_too() -> None:
    block = random.Random(1).randbytes(20_000)
    assert payloads.plain(compressed(block * 2)) == block * 2


def test_as_much_as_allowed_may_come_out_of_gzip_and_not_one_byte_more(monkeypatch):
    assert payloads.MAX_PLAIN_BYTES == 64 * 1024 * 1024
    monkeypatch.setattr(payloads, "MAX_PLAIN_BYTES", 30)
    assert payloads.plain(compressed(b"x" * 30)) == b"x" * 30
    assert payloads.plain(compressed(b"x" * 10) * 3) == b"x" * 30
    uneven = compressed(b"x" * 10) + compressed(b"x" * 25)
    for data in (compressed(b"x" * 31), compressed(b"x" * 11) * 3, uneven):
        with pytest.raises(CorruptItem, match="more than"):
            payloads.plain(data)
    with pytest.raises(CorruptItem, match="ends too early"):
        payloads.plain(compressed(b"x" * 30)[:-1])
    assert payloads.plain(compressed(b"ab") + b"behind") == b"ab"


def test_where_the_znodes_of_a_queue_are():
    side = ("members", "tallies", "claims", "bound", "control", "drained", "drains")
    for meta_path, meta, dead in ((None, "/q-meta", "/q-dead"), ("/side", "/side", "/side/dead")):
        paths = QueuePaths("/q", "/locks", meta_path)
        assert [getattr(paths, name) for name in side] == [f"{meta}/{name}" for name in side]
        assert (paths.path, paths.item("i"), paths.lock("i")) == ("/q", "/q/i", "/locks/i")
        assert (paths.lock_path, paths.meta_path) == ("/locks", meta_path)
        assert (paths.meta, paths.dead) == (meta, dead)
    with pytest.raises(ValueError, match="has no lock path"):
        QueuePaths("/q").lock("i")
    with pytest.raises(ConfigurationError):
        QueuePaths("q")


def test_consumers_pause_when_an_operator_says_so_and_not_otherwise() -> None:
    assert wants_pause(b'{"paused": true}')
    for other in (b'{"paused": 1}', b"{}", b"", b"[]", b"\xff", b"[" * 100_000):
        assert wants_pause(other) is False


def test_a_refusal_beside_the_queue_is_explained_and_any_other_is_not() -> None:
    paths, elsewhere = QueuePaths("/jobs"), QueuePaths("/jobs", meta_path="/meta")
    error = explained(NoPermission("no", path="/jobs-meta/members"), paths)
    assert "meta_path=" in str(error)
    assert isinstance(error, NoPermission)
    assert error.path == "/jobs-meta/members"
    others = [NoPermission("no", path=path) for path in (None, "/jobs/x")]
    for other in (*others, NoNode("no", path="/jobs-meta/members")):
        assert explained(other, paths) is other
    theirs = NoPermission("no", path="/meta/members")
    assert explained(theirs, elsewhere) is theirs


@pytest.mark.parametrize(
    ("left", "suspects", "deaths"),
    [
        ([{"a", "b"}], set(), {}),
        ([{"a", "b"}, {"a", "c"}], {"a"}, {}),
        # what it was is known: b need not go alone
        ([{"a", "b"}, {"a", "b"}, {"a"}], set(), {"a": 3}),
        ([{"a", "b"}, {"a", "b"}, {"c"}], {"a", "b"}, {"c": 1}),
        ([{"a", "b"}, {"b", "c"}, {"b", "c"}, {"a"}], {"b", "c"}, {"a": 2}),
    ],
)
def test_what_was_held_at_two_deaths_is_a_suspect_until_it_is_known_over_what_they_died(
    left: list[set[str]], suspects: set[str], deaths: dict[str, int]
) -> None:
    records = DeathRecords(None, QueuePaths("/q"))  # type: ignore[arg-type]
    records._left = {str(number): (len(held) == 1, held) for number, held in enumerate(left)}
    assert {name for name in "abc" if records.is_suspect(name)} == suspects
    assert {name: count for name in "abc" if (count := records.deaths_of(name))} == deaths


def test_a_death_that_the_note_of_a_kept_item_tells_of_is_not_counted_again() -> None:
    options = QueueOptions(consumer=print, error_mode=ErrorMode.KEEP)
    engine = SimpleNamespace(options=options, path="/q")
    workers = ItemWorkers("q", engine)  # type: ignore[arg-type]
    writer = SimpleNamespace(limit=1000, chroot_bytes=0, is_ephemeral=True)
    membership = Membership(QueuePaths("/q", "/locks"), writer, "/members/one", 1)  # type: ignore[arg-type]
    claim = Claim("queue-0000000000", encode([b"a"]), 0, 0, membership)
    claim.deaths = 1
    assert workers._failed(claim, claim.items, ValueError()).outcome is ItemOutcome.KEPT
    assert claim.failures == 2  # one death, one failure


@pytest.mark.parametrize("is_renamed", [False, True])
@pytest.mark.parametrize(
    ("name", "data", "back"),
    [
        ("queue-0000000003", b"corrupt", b"corrupt"),
        ("qn-0000000003", b"raw", b"raw"),
        ("queue-0000000003", encode([b"a"]), encode([b"a"], Note(enqueued_ms=7))),
    ],
)
def test_what_was_deleted_for_its_claim_is_released_as_it_was_read(name, data, back, is_renamed):
    writer: Any = SimpleNamespace(limit=1000, chroot_bytes=0, is_ephemeral=False)
    claim = Claim(name, data, 7, 0, Membership(QueuePaths("/q"), writer, "/members/one", 1))
    (made,) = released(claim, is_renamed=is_renamed).operations
    path = f"/q/{name[:-10]}" if is_renamed else f"/q/{name}"
    assert made == Create(path, back, sequential=is_renamed)


@pytest.mark.parametrize("place", ["lock_path", "meta_path"])
@pytest.mark.parametrize("path", ["", "/", "/zookeeper/locks", "locks", 5])
def test_a_place_that_no_queue_may_have_is_refused_with_its_value(place: str, path: Any) -> None:
    with pytest.raises(ConfigurationError, match=f"znode path {path!r} "):
        QueuePaths("/jobs", **{place: path})


@pytest.mark.parametrize("returned", [None, "text", 5])
def test_a_serializer_that_returns_no_bytes_is_told_so(returned: Any) -> None:
    with pytest.raises(TypeError, match=r"serializer returned a \w+; it must return bytes"):
        unchanging(returned)


def test_a_buffer_that_a_serializer_may_use_again_is_copied() -> None:
    buffer = bytearray(b"one")
    data = unchanging(buffer)
    buffer[:] = b"two"
    assert data == b"one"
    assert unchanging(array("B", b"two")) == b"two"
