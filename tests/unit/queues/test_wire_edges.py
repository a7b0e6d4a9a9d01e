"""Names, frames and paths of queues, at the edges of their ranges."""

from __future__ import annotations

import gzip
import random
import zlib
from typing import Any

import pytest

from leaderq.errors import ConfigurationError, CorruptItem, NoPermission
from leaderq.queues.wire import payload as payloads
from leaderq.queues.wire.names import (
    LAST_SEQUENCE,
    QueueKind,
    kind_of,
    sort_key,
)
from leaderq.queues.wire.payload import (
    MAX_PLAIN_BYTES,
    MAX_TEXT,
    Note,
    compressed,
    decode,
    is_compressed,
)
from leaderq.queues.wire.znodes import QueuePaths, explaining_refusals, wants_pause


def test_the_counter_is_a_signed_number_of_32_bits() -> None:
    assert LAST_SEQUENCE == 2147483647


def test_items_of_a_simple_queue_and_of_another_are_not_of_one_kind() -> None:
    with pytest.raises(ConfigurationError, match="say which kind"):
        kind_of(["qn-0000000001", "queue-0000000001"])
    assert kind_of(["qn-0000000001", "foreign"]) is QueueKind.SIMPLE


def test_ids_are_cut_out_of_names_at_the_first_two_separators() -> None:
    key = sort_key(QueueKind.ID)
    assert key("queue-|a|b|0000000001") == "queue-b|0000000001"


def test_items_of_one_due_time_go_by_their_numbers_whatever_those_are() -> None:
    numbers = ["-2147483648", "-000000001", "0000000000", "2147483647"]
    names = [f"queue-|{due:08X}|{number}" for due in (5, 6) for number in numbers]
    assert sorted(names, key=sort_key(QueueKind.DELAY)) == names
    key = sort_key(QueueKind.DELAY)
    assert key("queue-|00000005|9999999999") == key("queue-|00000005|2147483647")
    assert key("queue-|00000005|-9999999999") == key("queue-|00000005|-2147483648")
    assert key("queue-|00000005|-2147483648") + 1 == key("queue-|00000005|-2147483647")
    assert key("queue-|00000006|-2147483648") - key("queue-|00000005|-2147483648") == 2**32


def test_in_a_simple_queue_what_is_not_a_number_goes_last() -> None:
    key = sort_key(QueueKind.SIMPLE)
    names = ["qn-0000000001", "qn-9223372036854775807", "qn-x"]
    assert sorted(names, key=key) == names


def test_a_note_keeps_two_thousand_characters_of_an_error() -> None:
    assert MAX_TEXT == 2000
    read = Note.read(Note(error="x" * 2001).packed())
    assert read is not None
    assert read.error == "x" * 2000
    assert Note(attempt=1).packed() == b'leaderq:{"attempt":1}'
    assert Note(error="\u00e4").packed() == 'leaderq:{"error":"\u00e4"}'.encode()
    assert Note() == Note(0, None, None, None, None, None, None, False)


def test_compressed_bytes_are_those_of_one_gzip_member_at_time_zero() -> None:
    assert compressed(b"abc") == gzip.compress(b"abc", mtime=0)
    assert gzip.decompress(compressed(b"abc")) == b"abc"
    assert (is_compressed(compressed(b"")), is_compressed(b"x")) == (True, False)


def test_what_is_repeated_far_behind_is_decompressed_too() -> None:
    block = random.Random(1).randbytes(20_000)
    assert payloads.plain(compressed(block * 2)) == block * 2


def test_of_gzip_in_another_format_of_zlib_nothing_is_taken() -> None:
    with pytest.raises(CorruptItem, match="ends too early|cannot be decompressed"):  # noqa: RUF043
        decode(b"\x1f\x8b" + zlib.compress(b"abc"))


def test_as_much_as_allowed_may_come_out_of_gzip_and_not_one_byte_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MAX_PLAIN_BYTES == 64 * 1024 * 1024
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


def test_side_data_lies_beside_the_queue_or_where_it_was_asked_for() -> None:
    paths = QueuePaths("/jobs", "/locks")
    assert (paths.path, paths.lock_path, paths.meta_path) == ("/jobs", "/locks", None)
    assert (paths.meta, paths.dead) == ("/jobs-meta", "/jobs-dead")
    names = ("members", "tallies", "claims", "bound", "control", "drained", "drains")
    assert [getattr(paths, name) for name in names] == [f"/jobs-meta/{name}" for name in names]
    assert (paths.item("n"), paths.lock("n")) == ("/jobs/n", "/locks/n")
    elsewhere = QueuePaths("/jobs", meta_path="/meta")
    assert (elsewhere.meta_path, elsewhere.meta, elsewhere.dead) == ("/meta", "/meta", "/meta/dead")
    with pytest.raises(ValueError, match="no lock path"):
        elsewhere.lock("n")


@pytest.mark.parametrize("given", [("bad",), ("/a", "bad"), ("/a", None, "bad")])
def test_a_path_that_zookeeper_cannot_use_is_refused_at_once(given: tuple[Any, ...]) -> None:
    with pytest.raises(ConfigurationError):
        QueuePaths(*given)


@pytest.mark.parametrize(
    ("data", "is_asked"),
    [
        (b'{"paused": true}', True),
        (b'{"paused": 1}', False),
        (b'{"paused": false}', False),
        (b"{}", False),
        (b"", False),
        (b"[]", False),
        (b"{", False),
        (b"\xff", False),
        (b"[" * 100_000, False),
    ],
)
def test_consumers_pause_when_an_operator_says_so_and_not_otherwise(
    data: bytes, is_asked: bool
) -> None:
    assert wants_pause(data) is is_asked


def refused(path: str | None, meta_path: str | None = None) -> NoPermission:
    with (
        pytest.raises(NoPermission) as caught,
        explaining_refusals(QueuePaths("/jobs", meta_path=meta_path)),
    ):
        raise NoPermission("no", path=path)
    return caught.value


def test_a_refusal_beside_the_queue_is_explained_and_any_other_is_not() -> None:
    explained = refused("/jobs-meta/members")
    assert "meta_path=" in str(explained)
    assert explained.path == "/jobs-meta/members"
    for other in (refused(None), refused("/jobs/x"), refused("/meta/members", "/meta")):
        assert "meta_path=" not in str(other)
    with explaining_refusals(QueuePaths("/jobs")):
        pass
