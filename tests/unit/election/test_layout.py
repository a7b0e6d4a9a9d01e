"""Names, paths, places and the wrapping counter."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leaderq.election.layout import Layout, in_line, name_prefix, new_guid, position_of, sequence

A, B = "0b0fd1c6-0000-4000-8000-000000000001", "0b0fd1c6-0000-4000-8000-000000000002"


def named(guid: str, number: str) -> str:
    return f"{name_prefix(guid)}{number}"


def test_names_are_those_of_a_java_leader_latch():
    assert name_prefix(A) == f"_c_{A}-latch-"
    assert len(new_guid()) == 36


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (named(A, "0000000007"), 7),
        (named(A, "2147483647"), 2147483647),
        (named(A, "-2147483648"), 2147483648),
        (named(A, "-000000001"), 4294967295),
        ("latch-0000000003", 3),
        ("something else", None),
        ("_c_x-latch-12", None),
    ],
)
def test_the_counter_is_read_as_an_unsigned_number(name, number):
    assert sequence(name) == number


def test_foreign_names_are_not_in_line():
    assert in_line(["lock-0000000001", "readme"]) == []


def test_the_place_names_the_one_in_front():
    names = [named(B, "0000000004"), named(A, "0000000002")]
    place = position_of(B, names)
    assert place is not None
    assert (place.name, place.ahead, place.surplus) == (names[0], names[1], ())
    first = position_of(A, names)
    assert first is not None
    assert first.ahead is None


def test_a_creation_that_happened_twice_counts_once_at_its_foremost_place():
    names = [named(A, "0000000005"), named(A, "0000000003"), named(B, "0000000004")]
    place = position_of(A, names)
    assert place is not None
    assert (place.name, place.ahead, place.surplus) == (names[1], None, (names[0],))


def test_who_does_not_stand_has_no_place():
    assert position_of(A, [named(B, "0000000001")]) is None


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
