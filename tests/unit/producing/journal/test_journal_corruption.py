"""What a journal does with files that are not as it left them: each kind of damage a test."""

from __future__ import annotations

import os
import struct
from pathlib import Path
from typing import Any

import pytest
from faulty_disk import FaultyDisk, at_record, crash, cut, flip, io_error, payloads, segments

from leaderq.errors import JournalFailed
from leaderq.producing.journal import Journal
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

SIZE = 100
PER_SEGMENT = (4096 - HEADER_BYTES) // (HEAD_BYTES + SIZE)


def record(number: int) -> bytes:
    return b"%0100d" % number


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "journal"


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


@pytest.mark.parametrize(
    "where",
    [0, 5, 12, 24, 28, 28 + SIZE - 1],
    ids=["length", "checksum", "id", "mark", "payload", "last byte"],
)
@pytest.mark.parametrize("clean", [True, False], ids=["closed", "killed"])
def test_a_record_that_does_not_check_is_reported_and_reading_goes_on(place, where, clean):
    fill(place, 20, clean=clean)
    original = segments(place)[0].read_bytes()
    flip(segments(place)[0], at_record(4, SIZE) + where)
    with Journal(place) as journal:
        assert numbers(journal) == without(20, 5)
        assert journal.counters.corrupt == 1
        assert [damage.lost_ids for damage in journal.damages] == [(5, 5)]
        journal.append(record(21))
        journal.ack_to(21)
        eventually(lambda: journal.counters.set_aside == 1)
    kept = list(place.glob("*.bad"))
    assert [len(path.read_bytes()) for path in kept] == [len(original)], (
        "the spoilt segment is kept, whole"
    )


def test_a_length_that_is_spoilt_hides_nothing_behind_it(place):
    fill(place, 20)
    with segments(place)[0].open("r+b") as file:
        for position, length in ((2, 0), (7, 5), (11, 0xFFFFFFFF), (15, 1500)):
            file.seek(at_record(position, SIZE))
            file.write(struct.pack("<I", length))
    with Journal(place) as journal:
        assert numbers(journal) == without(20, 3, 8, 12, 16)
        assert journal.counters.corrupt == 4


def test_a_finished_segment_cut_within_a_record_is_reported_once_and_reading_advances(place):
    fill(place, 3 * PER_SEGMENT)
    cut(segments(place)[0], at_record(PER_SEGMENT - 2, SIZE) + 11)
    for _ in range(2):
        with Journal(place) as journal:
            assert numbers(journal) == without(3 * PER_SEGMENT, PER_SEGMENT - 1, PER_SEGMENT)
            assert numbers(journal)[-1] == 3 * PER_SEGMENT
            assert sum(damage.lost for damage in journal.damages) <= 2
            assert len(journal.damages) <= 1


def test_a_finished_segment_hurt_while_the_journal_is_open_is_passed(place):
    with Journal(place, segment_bytes=4096) as journal:
        for number in range(1, 3 * PER_SEGMENT + 1):
            journal.append(record(number))
        flip(segments(place)[1], at_record(0, SIZE) + 50)
        cut(segments(place)[0], at_record(3, SIZE))
        lost = [*range(4, PER_SEGMENT + 1), PER_SEGMENT + 1]
        assert numbers(journal) == without(3 * PER_SEGMENT, *lost)
        assert journal.counters.corrupt == len(lost)
        assert journal.depth == 3 * PER_SEGMENT - len(lost)
        assert len(journal.damages) == 2
        numbers(journal)
        assert len(journal.damages) == 2, "reported once"


@pytest.mark.parametrize("torn", [1, 27, 28, 29, HEAD_BYTES + SIZE - 1])
def test_a_torn_tail_is_cut_off_at_opening(place, torn):
    fill(place, 10, clean=False)
    path = segments(place)[0]
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(whole[-(HEAD_BYTES + SIZE) :][:torn])
    with Journal(place) as journal:
        assert journal.report.torn_bytes == torn
        assert not journal.damages
        assert numbers(journal) == without(10)
        journal.append(record(11))
        assert numbers(journal) == without(11)
    assert path.read_bytes() == whole
    assert not list(place.glob("*.bad"))


def test_zeros_that_a_crashed_file_system_left_are_a_torn_tail(place):
    fill(place, 10, clean=False)
    with segments(place)[0].open("ab") as file:
        file.write(bytes(5000))
    with Journal(place) as journal:
        assert numbers(journal) == without(10)
        assert journal.report.torn_bytes == 0
        assert not journal.damages
    assert segments(place)[0].stat().st_size == at_record(10, SIZE)


def test_a_last_record_that_was_whole_once_is_cut_off_but_kept(place):
    fill(place, 10, clean=False)
    flip(segments(place)[0], -3)
    with Journal(place) as journal:
        assert numbers(journal) == without(9)
        assert [damage.size for damage in journal.damages] == [HEAD_BYTES + SIZE]
        assert journal.append(record(11)) > 10, "an id that was given out is not given again"
    assert [path.stat().st_size for path in place.glob("*.tail.bad")] == [HEAD_BYTES + SIZE]


def test_a_spoilt_last_record_that_ends_in_zeros_is_kept_all_the_same(place):
    """Zeros behind the last record are the file system's; those at its end are its own."""
    journal = Journal(place)
    journal.append_many([b"1", b"x" * 100 + bytes(15)])
    crash(journal)
    flip(segments(place)[0], -50)
    with Journal(place) as journal:
        assert payloads(journal) == [b"1"]
        assert [damage.size for damage in journal.damages] == [HEAD_BYTES + 115]
    assert [path.stat().st_size for path in place.glob("*.tail.bad")] == [HEAD_BYTES + 115]


def test_records_written_after_the_cursor_was_saved_are_found(place):
    """Last record flushed, but the id not advanced."""
    journal = Journal(place)
    journal.append(record(1))
    journal.flush()
    saved = [(place / name).read_bytes() for name in ("cursor.0", "cursor.1")]
    for number in range(2, 11):
        journal.append(record(number))
    crash(journal)
    for name, data in zip(("cursor.0", "cursor.1"), saved, strict=True):
        (place / name).write_bytes(data)
    with Journal(place) as journal:
        assert numbers(journal) == without(10)
        assert journal.next_id == 11
        assert journal.report.scanned_bytes == 9 * (HEAD_BYTES + SIZE), (
            "what was written before the save is not read again"
        )


def test_records_that_the_cursor_knows_and_the_file_does_not_hold_are_reported(place):
    """Last record not flushed."""
    fill(place, 10)
    cut(segments(place)[0], at_record(8, SIZE))
    with Journal(place) as journal:
        assert numbers(journal) == without(8)
        assert [damage.lost_ids for damage in journal.report.damages] == [(9, 10)]
        assert journal.append(record(11)) == 11


def test_h6_a_journal_with_a_segment_of_a_later_version_is_refused_and_nothing_is_changed(place):
    """Rolled back, leaderq must not lose what the later version left."""
    fill(place, 3 * PER_SEGMENT)
    path = segments(place)[1]
    kept = path.read_bytes()
    header = SegmentHeader(PER_SEGMENT + 1, version=7).encode()
    path.write_bytes(header + kept[HEADER_BYTES:])
    before = {each.name: each.read_bytes() for each in segments(place)}
    with pytest.raises(JournalFailed, match=r"has version 7, and this leaderq knows"):
        Journal(place)
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


@pytest.mark.parametrize("offset", [0, 20, HEADER_BYTES - 1])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_spoilt_header_costs_no_record(place, offset, which):
    fill(place, 3 * PER_SEGMENT)
    flip(segments(place)[which], offset)
    with Journal(place) as journal:
        assert numbers(journal) == without(3 * PER_SEGMENT)
        assert [damage.reason for damage in journal.damages] == ["its header is spoilt"]
        journal.ack_to(3 * PER_SEGMENT)
        eventually(lambda: journal.counters.set_aside == 1)
    assert len(list(place.glob("*.bad"))) == 1


def test_a_disk_that_cannot_give_back_a_segment_blocks_nothing(place):
    fill(place, 3 * PER_SEGMENT)
    disk = FaultyDisk()
    bad = segments(place)[1].stat().st_ino

    def unreadable(fd: int, size: int, offset: int) -> None:
        if os.fstat(fd).st_ino == bad and offset >= HEADER_BYTES:
            raise io_error()

    disk.fail["read"] = unreadable
    with Journal(place, disk=disk) as journal:
        assert numbers(journal) == [
            *range(1, PER_SEGMENT + 1),
            *range(2 * PER_SEGMENT + 1, 3 * PER_SEGMENT + 1),
        ]
        assert journal.counters.corrupt == PER_SEGMENT


def spoil(path: Path, how: str) -> None:
    size = path.stat().st_size
    if how == "flipped":
        flip(path, 40)
    elif how == "zeros":
        path.write_bytes(bytes(size))
    elif how == "cut":
        cut(path, 30)
    else:
        path.unlink()


@pytest.mark.parametrize("how", ["flipped", "zeros", "cut", "gone"])
def test_without_any_cursor_everything_comes_again_and_no_id_does(place, how):
    journal = Journal(place, segment_bytes=4096)
    for number in range(1, 3 * PER_SEGMENT + 1):
        journal.append(record(number))
    journal.ack_to(5)
    journal.close()
    for slot in (0, 1):
        spoil(place / f"cursor.{slot}", how)
    with Journal(place) as journal:
        assert journal.report.cursor_lost
        assert numbers(journal) == without(3 * PER_SEGMENT)
        assert journal.append(b"x") > 3 * PER_SEGMENT


def test_a_segment_that_is_gone_is_reported_unless_it_was_set_aside(place):
    fill(place, 3 * PER_SEGMENT)
    segments(place)[1].unlink()
    with Journal(place) as journal:
        assert [damage.lost_ids for damage in journal.report.damages] == [
            (PER_SEGMENT + 1, 2 * PER_SEGMENT)
        ]
        assert len(numbers(journal)) == 2 * PER_SEGMENT
    with Journal(place) as journal:
        assert not journal.report.damages


def test_a_segment_whose_making_was_interrupted_is_removed(place):
    fill(place, 5, clean=False)
    stamp = int(segments(place)[0].name[21:29], 16)
    (place / segment_name(6, stamp)).write_bytes(b"lqjrn")
    with Journal(place) as journal:
        assert numbers(journal) == without(5)
        assert journal.append(record(6)) == 6


def test_a_journal_kept_as_a_payload_is_not_read_as_records_of_this_one(place, tmp_path):
    fill(tmp_path / "inner", 20)
    inner = segments(tmp_path / "inner")[0].read_bytes()
    with Journal(place) as journal:
        journal.append_many([b"before" for _ in range(3)])
        journal.append(inner)
        journal.append(b"after")
    flip(segments(place)[0], HEADER_BYTES + 3 * (HEAD_BYTES + 6) + 2)
    with Journal(place) as journal:
        assert payloads(journal) == [b"before"] * 3 + [b"after"]
        assert journal.counters.corrupt == 1


def test_a_segment_that_somebody_deletes_while_the_journal_is_open_is_reported_and_passed(place):
    with Journal(place, segment_bytes=4096) as journal:
        for number in range(1, 3 * PER_SEGMENT + 1):
            journal.append(record(number))
        segments(place)[1].unlink()
        assert numbers(journal) == [
            *range(1, PER_SEGMENT + 1),
            *range(2 * PER_SEGMENT + 1, 3 * PER_SEGMENT + 1),
        ]
        assert [damage.reason for damage in journal.damages] == ["the file is gone"]
        journal.ack_to(3 * PER_SEGMENT)
        eventually(lambda: len(segments(place)) == 1)
    with Journal(place) as journal:
        assert not journal.report.damages


def test_after_a_file_was_set_aside_and_the_cursor_lost_ids_go_on_beyond_both(place):
    """No id is given twice."""
    fill(place, 3)
    stamp = int(segments(place)[0].name[21:29], 16)
    first = 3 * LEAP
    (place / f"{segment_name(first, stamp)}.bad").write_bytes(bytes(10 * HEAD_BYTES))
    for path in place.glob("cursor.*"):
        path.unlink()
    with Journal(place, segment_bytes=4096) as journal:
        assert journal.append(b"next") >= first + 10
