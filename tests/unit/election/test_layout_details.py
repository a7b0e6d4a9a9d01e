"""Paths, wrapped counters, defaults, and what is shown of a term's end, to the digit."""

from __future__ import annotations

import json
import logging

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leaderq.election.layout import (
    EndDetails,
    Layout,
    TermRecord,
    Wishes,
    WishesDecoder,
    closed,
    decode,
    encode,
    in_line,
    past_with,
    terms_before,
)
from leaderq.errors import CorruptRecord


@pytest.mark.parametrize(
    ("root", "base", "shared"),
    [("/a", "/a/c", "/a"), ("/a/", "/a/c", "/a"), ("/", "/c", "/"), ("", "/c", "/")],
)
def test_all_paths_of_a_career_lie_below_its_base(root: str, base: str, shared: str) -> None:
    layout = Layout(root, "c")
    assert (layout.root, layout.career, layout.shared, layout.base) == (root, "c", shared, base)
    names = ("candidates", "processes", "term", "control", "progress", "offsets", "attempts")
    assert [getattr(layout, name) for name in names] == [f"{base}/{name}" for name in names]
    assert layout.candidate("x") == f"{base}/candidates/x"
    assert layout.process(0x1F) == f"{base}/processes/1f"


def numbered(number: int) -> str:
    signed = number if number < 2**31 else number - 2**32
    return f"_c_x-latch-{signed:010d}"


@example(0, [0, 2**31])
@example(2**31 - 1, [0, 1])  # where the number is written with a sign
@example(2**32 - 1, [0, 1])
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**31 - 1), min_size=1, unique=True))
def test_whoever_was_made_later_stands_later_wherever_the_counter_wraps(
    start: int, steps: list[int]
) -> None:
    names = [numbered((start + step) % 2**32) for step in sorted(steps)]
    assert in_line(names[::-1]) == names


def test_records_have_defaults_and_an_empty_znode_holds_them() -> None:
    assert decode(TermRecord, b"", path="/p") == TermRecord(0) == TermRecord()
    assert decode(Wishes, b"", path="/p") == Wishes(False, None, None, 0) == Wishes()
    assert decode(Wishes, b"{}", path="/p") == Wishes()
    assert EndDetails() == EndDetails(None, 0.0)


@pytest.mark.parametrize("kind", [TermRecord, Wishes])
@pytest.mark.parametrize("number", ["-1", '"1"', "true", "1.0", "null", "[]"])
def test_a_number_that_cannot_be_one_makes_a_corrupt_record(kind: type, number: str) -> None:
    name = "number" if kind is TermRecord else "floor"
    with pytest.raises(CorruptRecord, match="raise-floor|pause or resume"):  # noqa: RUF043
        decode(kind, f'{{"{name}":{number}}}'.encode(), path="/p")


@pytest.mark.parametrize("data", [b"[]", b"5", b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_an_object_is_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptRecord, match="/p"):
        decode(TermRecord, data, path="/p")


def test_damaged_former_terms_are_left_out_and_the_others_kept() -> None:
    raw = b'{"number":3,"past":[{"number":2,"past":[{}]},5,{"number":-1},{"number":1}]}'
    record = decode(TermRecord, raw, path="/p")
    assert terms_before(record) == (TermRecord(2), TermRecord(1))
    assert decode(TermRecord, b'{"past":5}', path="/p").past == ()


def test_rare_fields_are_written_only_where_they_say_something() -> None:
    assert set(json.loads(encode(TermRecord()))) >= {"number", "candidate", "reason"}
    assert not {"error", "stands_again", "past"} & set(json.loads(encode(TermRecord())))
    full = TermRecord(error="e", stands_again=1.0, past=({"number": 1},))
    assert {"error", "stands_again", "past"} <= set(json.loads(encode(full)))


def test_damaged_wishes_are_logged_once_each_and_are_none(caplog: pytest.LogCaptureFixture) -> None:
    decoder = WishesDecoder("/p/control")
    with caplog.at_level(logging.ERROR):
        said = [decoder.decoded(data) for data in (b"{", b"{", b'{"paused":true}', b"[", b"[")]
    assert said == [None, None, Wishes(True), None, None]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "/p/control" in caplog.text


def test_the_newest_ten_terms_are_kept_and_of_each_what_is_known() -> None:
    former = tuple({"number": number} for number in range(12, 0, -1))
    assert past_with(TermRecord(past=former)) == former
    newest = TermRecord(number=13, candidate="a", error="e", past=former)
    assert past_with(newest) == (
        {"number": 13, "candidate": "a", "error": "e"},
        *former[:9],
    )


@pytest.mark.parametrize(
    ("length", "kept"), [(239, "x" * 239), (240, "x" * 240), (241, "x" * 239 + "\u2026")]
)
def test_of_a_long_error_the_beginning_is_shown(length: int, kept: str) -> None:
    details = EndDetails("x" * length)
    assert closed(TermRecord(), ended=1.0, reason="r", details=details).error == kept


@pytest.mark.parametrize(
    ("cool_off_s", "stands_again"),
    [(0.0, None), (0.49, None), (0.5, 1.5), (1.23456, 2.235)],
)
def test_a_cool_off_is_shown_from_half_a_second_on(
    cool_off_s: float, stands_again: float | None
) -> None:
    details = EndDetails(cool_off_s=cool_off_s)
    record = closed(TermRecord(number=4), ended=1.0, reason="r", details=details)
    assert record == TermRecord(4, ended=1.0, reason="r", stands_again=stands_again)
    assert closed(TermRecord(), ended=1.0, reason="r").error is None
    spaced = EndDetails(" a\n  b ")
    assert closed(TermRecord(), ended=1.0, reason="r", details=spaced).error == "a b"
