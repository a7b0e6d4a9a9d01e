"""What a journal does with files that are not as it left them: each kind of damage a row."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from faulty_disk import FaultyDisk, at_record, crash, cut, flip, io_error, payloads, segments

from leaderq.errors import JournalFailed
from leaderq.producing.journal import Journal
from leaderq.producing.journal.inspection import JournalView, entries
from leaderq.producing.journal.records import HEAD_BYTES
from leaderq.producing.journal.recovery import LEAP
from leaderq.producing.journal.segments import (
    HEADER_BYTES,
    SegmentHeader,
    codec_tag,
    decode,
    segment_name,
)
from leaderq.testing import eventually

Hurt = Callable[[list[Path]], object]
SIZE = 100
EACH = HEAD_BYTES + SIZE
PER_SEGMENT = (4096 - HEADER_BYTES) // EACH


def record(number: int) -> bytes:
    return b"%0100d" % number


def fill(place: Path, count: int, *, clean: bool = True, **options: Any) -> None:
    """Records of :data:`SIZE` bytes in segments of 4096."""
    journal = Journal(place, segment_bytes=4096, **options)
    for number in range(1, count + 1):
        journal.append(record(number))
    journal.close() if clean else crash(journal)


def numbers(journal: Journal) -> list[int]:
    return [int(payload) for payload in payloads(journal)]


def without(count: int, *missing: int) -> list[int]:
    return [number for number in range(1, count + 1) if number not in missing]


def grown(data: bytes) -> Hurt:
    return lambda files: files[0].write_bytes(files[0].read_bytes() + data)


def flipped(offset: int, which: int = 0) -> Hurt:
    return lambda files: flip(files[which], offset)


def shorter(position: int, extra: int, which: int = 0) -> Hurt:
    return lambda files: cut(files[which], at_record(position, SIZE) + extra)


def stub(files: list[Path]) -> None:
    """The making of the next segment was interrupted."""
    files[0].with_name(segment_name(11, int(files[0].name[21:29], 16))).write_bytes(b"lqjrn")


LAST, CLOSED, KILLED = PER_SEGMENT, 3 * PER_SEGMENT, 10


@pytest.mark.parametrize(
    ("count", "hurt", "missing", "kept", "torn"),
    [
        *[(count, flipped(at_record(4, SIZE) + 28), (5,), 1, 0) for count in (CLOSED, KILLED)],
        *[(CLOSED, flipped(20, which), (), 1, 0) for which in (0, 1, 2)],
        (CLOSED, shorter(LAST - 2, 11), (LAST - 1, LAST), 1, 0),
        (CLOSED, shorter(LAST - 1, 0, 2), (CLOSED,), 1, 0),
        (CLOSED, lambda files: files[1].unlink(), range(LAST + 1, 2 * LAST + 1), 0, 0),
        *[(KILLED, grown(b"\x7f" * at), (), 0, at) for at in (1, 27, 28, 29, EACH - 1)],
        (KILLED, grown(bytes(5000)), (), 0, 0),
        (KILLED, flipped(-3), (10,), 1, EACH),  # a last record that was whole once
        (KILLED, stub, (), 0, 5),
    ],
)
def test_what_is_sound_is_read_and_what_is_not_is_reported_once_and_kept(
    place, count, hurt, missing, kept, torn
):
    fill(place, count, clean=count == CLOSED)
    hurt(segments(place))
    sizes = {path.stat().st_size for path in segments(place)}
    for is_first in (True, False):
        with Journal(place) as journal:
            assert numbers(journal) == without(count, *missing)
            if is_first:
                assert journal.report.torn_bytes == torn
                assert journal.counters.corrupt == sum(damage.lost for damage in journal.damages)
            assert journal.counters.corrupt <= len(missing)
    with Journal(place) as journal:
        following = journal.append(record(count + 1))
        assert following > count, "an id that was given out is not given again"
        assert numbers(journal)[-1] == count + 1, "and reading reaches what is new"
        journal.ack_to(following)
        eventually(lambda: len(list(place.glob("*.bad"))) == kept)
    assert {path.stat().st_size for path in place.glob("*.bad")} <= sizes, "whole"


def two(files: list[Path], _: FaultyDisk) -> None:
    flip(files[1], at_record(0, SIZE) + 50)
    cut(files[0], at_record(3, SIZE))


def unreadable(files: list[Path], disk: FaultyDisk) -> None:
    inode = files[1].stat().st_ino

    def fail(fd: int, _: int, offset: int) -> None:
        if os.fstat(fd).st_ino == inode and offset >= HEADER_BYTES:
            raise io_error()

    disk.fail["read"] = fail


@pytest.mark.parametrize(
    ("hurt", "lost", "reasons"),
    [
        (two, [*range(4, LAST + 1), LAST + 1], ["its end is missing or spoilt", "spoilt"]),
        (unreadable, range(LAST + 1, 2 * LAST + 1), ["its end is missing or spoilt"]),
        (lambda files, _: files[1].unlink(), range(LAST + 1, 2 * LAST + 1), ["the file is gone"]),
    ],
)
def test_a_segment_hurt_while_the_journal_is_open_is_reported_once_and_passed(
    place, disk, hurt, lost, reasons
):
    with Journal(place, segment_bytes=4096, disk=disk) as journal:
        for number in range(1, CLOSED + 1):
            journal.append(record(number))
        hurt(segments(place), disk)
        for _ in range(2):
            assert numbers(journal) == without(CLOSED, *lost)
        assert journal.counters.corrupt == len(lost)
        assert journal.depth == CLOSED - len(lost)
        assert [damage.reason for damage in journal.damages] == reasons
        journal.ack_to(CLOSED)
        eventually(lambda: len(segments(place)) == 1)


def test_a_spoilt_last_record_that_ends_in_zeros_is_kept_all_the_same(place):
    """Zeros behind the last record are the file system's; those at its end are its own."""
    journal = Journal(place)
    journal.append_many([b"1", b"x" * 100 + bytes(15)])
    crash(journal)
    flip(segments(place)[0], -50)
    with Journal(place) as journal:
        assert payloads(journal) == [b"1"]
        assert [damage.size for damage in journal.damages] == [HEAD_BYTES + 115]
        journal.ack_to(journal.append(b"next"))
        eventually(lambda: journal.counters.set_aside == 1)


def test_h6_a_journal_with_a_segment_of_a_later_version_is_refused_and_nothing_is_changed(place):
    fill(place, 3 * PER_SEGMENT)
    path = segments(place)[1]
    kept = path.read_bytes()
    header = SegmentHeader(PER_SEGMENT + 1, version=7).encode()
    path.write_bytes(header + kept[HEADER_BYTES:])
    before = {each.name: each.read_bytes() for each in segments(place)}
    for use in (Journal, JournalView, lambda _: [*entries(place)]):
        with pytest.raises(JournalFailed, match=r"has version 7, and this leaderq knows"):
            use(place)
    assert {each.name: each.read_bytes() for each in segments(place)} == before
    path.write_bytes(kept)  # rolled forward
    with Journal(place) as journal:
        assert numbers(journal) == without(3 * PER_SEGMENT)


def test_a_journal_of_the_release_before_is_opened_and_can_be_rolled_back_to(place):
    """Its headers have 0 where the codec's tag is now, and it does not look at that."""
    fill(place, PER_SEGMENT)
    assert decode(segments(place)[0].read_bytes()).codec == 0
    with Journal(place, segment_bytes=4096) as journal:
        assert not journal.name_codec("Json")
        for number in range(PER_SEGMENT + 1, 2 * PER_SEGMENT + 1):
            journal.append(record(number))
        assert numbers(journal) == without(2 * PER_SEGMENT)
    new = segments(place)[1].read_bytes()
    assert decode(new).codec == codec_tag("Json")
    magic, version, size, _, *rest = struct.unpack_from("<8sHHIQQQQQ", new)
    assert (magic, version, size, rest[0]) == (b"lqjrnl\r\n", 1, 60, PER_SEGMENT + 1)
    with Journal(place) as journal:
        assert journal.name_codec("Other")
        assert not journal.name_codec("Json")


def test_after_a_file_was_set_aside_and_the_cursor_lost_ids_go_on_beyond_both(place):
    fill(place, 3)
    stamp = int(segments(place)[0].name[21:29], 16)
    first = 3 * LEAP
    (place / f"{segment_name(first, stamp)}.bad").write_bytes(bytes(10 * HEAD_BYTES))
    for path in place.glob("cursor.*"):
        path.unlink()
    with Journal(place, segment_bytes=4096) as journal:
        assert journal.append(b"next") >= first + 10
