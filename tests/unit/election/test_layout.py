"""Names, places and the wrapping counter."""

from __future__ import annotations

import pytest

from leaderq.election.layout import in_line, name_prefix, new_guid, position_of, sequence

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
