"""No id of a journal is given twice, whatever was set aside and whatever was lost."""

from __future__ import annotations

from pathlib import Path

import pytest

from leaderq.producing.journal import Journal
from leaderq.producing.journal.records import HEAD_BYTES
from leaderq.producing.journal.recovery import LEAP
from leaderq.producing.journal.segments import SegmentHeader, parse_name, segment_name

SIZE = 10 * HEAD_BYTES


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with Journal(tmp_path / "journal", segment_bytes=4096) as journal:
        for number in range(3):
            journal.append(b"%d" % number)
    return tmp_path / "journal"


def name_of(place: Path, first_id: int) -> Path:
    """A segment of this journal that begins with this id."""
    (stamp,) = {known[1] for path in place.iterdir() if (known := parse_name(path.name))}
    return place / segment_name(first_id, stamp)


def lose_cursor(place: Path) -> None:
    for path in place.iterdir():
        if "cursor" in path.name:
            path.unlink()


def next_id(place: Path) -> int:
    with Journal(place, segment_bytes=4096) as journal:
        return journal.append(b"next")


def test_after_a_file_was_set_aside_and_the_cursor_lost_ids_go_on_beyond_both(place: Path) -> None:
    first = 3 * LEAP
    segment = name_of(place, first)
    segment.with_name(f"{segment.name}.bad").write_bytes(bytes(SIZE))
    lose_cursor(place)
    assert next_id(place) >= first + 10


def test_the_ids_of_a_file_that_a_newer_version_wrote_are_not_given_again(place: Path) -> None:
    first = 10_000
    header = SegmentHeader(first, version=7).encode()
    name_of(place, first).write_bytes(header + bytes(SIZE))
    assert next_id(place) > first + 10
    assert list(place.glob("*.bad"))
