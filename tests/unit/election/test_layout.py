from __future__ import annotations

import json
import logging
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leaderq.election import layout
from leaderq.election.layout import EndDetails, TermRecord, Wishes, closed, decode, past_with
from leaderq.election.observer import CandidateNode, Member, view_of
from leaderq.election.software import ProcessNote, Software
from leaderq.errors import CorruptRecord

A, B = "0b0fd1c6-0000-4000-8000-000000000001", "0b0fd1c6-0000-4000-8000-000000000002"


def named(guid: str, number: str) -> str:
    return f"{layout.name_prefix(guid)}{number}"


def test_names_are_those_of_a_java_leader_latch():
    assert layout.name_prefix(A) == f"_c_{A}-latch-"
    assert len(layout.new_guid()) == 36


@pytest.mark.parametrize(
    ("name", "number"),
    [
        (named(A, "0000000007"), 7),
        (named(A, "-2147483648"), 2147483648),
        (named(A, "-000000001"), 4294967295),
        ("latch-0000000003", 3),
        ("something else", None),
        ("_c_x-latch-12", None),
    ],
)
def test_the_counter_is_read_as_an_unsigned_number(name, number):
    assert layout.sequence(name) == number


def test_the_place_names_the_one_in_front():
    assert layout.in_line(["lock-0000000001", "readme"]) == []  # they are foreign
    names = [named(B, "0000000004"), named(A, "0000000002")]
    place = layout.position_of(B, names)
    assert (place.name, place.ahead, place.surplus, place.rank) == (names[0], names[1], (), 1)
    first = layout.position_of(A, names)
    assert (first.ahead, first.rank) == (None, 0)
    assert layout.position_of(A, names[:1]) is None  # it does not stand


def test_a_creation_that_happened_twice_counts_once_at_its_foremost_place():
    names = [named(A, "0000000005"), named(A, "0000000003"), named(B, "0000000004")]
    place = layout.position_of(A, names)
    assert (place.name, place.ahead, place.surplus, place.rank) == (names[1], None, (names[0],), 0)


@pytest.mark.parametrize(
    ("root", "base", "shared"),
    [("/a", "/a/c", "/a"), ("/a/", "/a/c", "/a"), ("/", "/c", "/"), ("", "/c", "/")],
)
def test_all_paths_of_a_career_lie_below_its_base(root, base, shared):
    made = layout.Layout(root, "c")
    assert (made.root, made.career, made.shared, made.base) == (root, "c", shared, base)
    names = "candidates processes term control progress offsets attempts burials schedules once"
    for name in names.split():
        assert getattr(made, name) == f"{base}/{name}"
    assert made.candidate("x") == f"{base}/candidates/x"
    assert made.process(0x1F) == f"{base}/processes/1f"


def numbered(number: int) -> str:
    signed = number if number < 2**31 else number - 2**32
    return f"_c_x-latch-{signed:010d}"


@example(0, [0, 2**31])
@example(2**31 - 1, [0, 1])  # where the number is written with a sign
@example(2**32 - 1, [0, 1])
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**31 - 1), min_size=1, unique=True))
def test_whoever_was_made_later_stands_later_wherever_the_counter_wraps(start, steps):
    names = [numbered((start + step) % 2**32) for step in sorted(steps)]
    assert layout.in_line(names[::-1]) == names


RECORD = TermRecord(3, "a", "_c_x-latch-0000000001", "h", pid=7, stage="execution", began=1.5)
FULL = replace(RECORD, error="E: x", stands_again=1.0, past=({"number": 2},))
A_STANDS = CandidateNode(str(RECORD.id), "a", 1)
B_STANDS = CandidateNode("_c_y-latch-0000000002", "b", 2)


@pytest.mark.parametrize("record", [RECORD, TermRecord(), FULL, Wishes(), Wishes(True, 4, "b", 9)])
def test_what_is_written_is_read_again(record):
    assert decode(type(record), layout.encode(record), path="/p") == record


def test_fields_of_a_newer_version_are_kept_where_a_record_is_written_again():
    wishes = decode(Wishes, b'{"paused": true, "colour": "red", "other": 1}', path="/p")
    assert wishes == Wishes(paused=True, other={"colour": "red", "other": 1})
    written = json.loads(layout.encode(replace(wishes, floor=3)))
    assert (written["colour"], written["other"], written["floor"]) == ("red", 1, 3)
    record = decode(TermRecord, b'{"number": 3, "candidate": "a", "mood": ["calm"]}', path="/p")
    assert json.loads(layout.encode(closed(record, ended=1.0, reason="r")))["mood"] == ["calm"]
    (former,) = past_with(record)
    assert former == {"number": 3, "candidate": "a", "mood": ["calm"]}
    (again,) = layout.terms_before(TermRecord(4, past=(former,)))
    assert again.other == {"mood": ["calm"]}


@pytest.mark.parametrize(
    ("data", "kept"),
    [(b'{"number":"x","mood":1}', {"mood": 1}), (b"[1]", {}), (b"{", {}), (b"[" * 100_000, {})],
)
def test_of_a_damaged_record_what_only_newer_versions_know_is_kept(data, kept):
    assert layout.unknown_in(data) == kept


def test_numbers_are_dense_and_never_below_an_operators_floor():
    assert layout.next_number(RECORD, Wishes()) == 4
    assert layout.next_number(RECORD, Wishes(floor=100)) == 100
    assert layout.next_number(RECORD, Wishes(floor=2)) == 4


def test_a_leader_is_who_the_record_names_and_still_stands_in_a_term_that_has_not_ended():
    standing = [A_STANDS, B_STANDS]
    view = view_of("c", RECORD, Wishes(), standing)
    assert (view.leader, view.pid, view.stage, view.candidates) == ("a", 7, "execution", ("a", "b"))
    gone = view_of("c", RECORD, Wishes(), [B_STANDS])
    assert (gone.leader, gone.pid, gone.term) == (None, None, 3)
    over = view_of("c", closed(RECORD, ended=9.0, reason="transfer"), Wishes(), [A_STANDS])
    assert (over.leader, over.reason, over.ended) == (None, "transfer", 9.0)


def test_a_record_without_news_is_written_as_it_always_was():
    """Older versions read and write these names."""
    names = ["number", "candidate", "id", "host", "pid", "stage", "began", "ended", "reason"]
    assert list(json.loads(layout.encode(RECORD))) == names


def test_those_who_cool_off_are_shown_until_they_stand_again_or_their_time_is_over():
    error = "ValueError: bad"
    failed = closed(RECORD, ended=10.0, reason="failed", details=EndDetails(error, 30.0))
    later = TermRecord(4, "b", B_STANDS.name, "h2", 8, "execution", 1.5, past=past_with(failed))
    later = closed(later, ended=12.0, reason="failed", details=EndDetails(error, 5.0))
    view = view_of("c", later, Wishes(), [], now=13.0)
    a, b = Member("a", "h", 7, 40.0), Member("b", "h2", 8, 17.0)
    assert (view.error, view.cooling_off) == (error, (b, a))
    assert [each.number for each in view.history] == [4, 3]
    assert view_of("c", later, Wishes(), [A_STANDS], now=13.0).cooling_off == (b,)
    assert view_of("c", later, Wishes(), [], now=41.0).cooling_off == ()


def test_a_later_term_of_a_candidate_ends_what_an_earlier_one_said_of_it():
    failed = closed(RECORD, ended=10.0, reason="failed", details=EndDetails("E", 300.0))
    again = replace(RECORD, number=4, past=past_with(failed))
    again = closed(again, ended=11.0, reason="withdrawn")
    assert view_of("c", again, Wishes(), [], now=12.0).cooling_off == ()


def test_members_have_the_places_that_their_sessions_say():
    standing = [A_STANDS, B_STANDS, CandidateNode("_c_z-latch-0000000003", "java", 9)]
    view = view_of("c", RECORD, Wishes(), standing, notes={2: ProcessNote("h2", 8)})
    assert view.members == (Member("a", "h", 7), Member("b", "h2", 8), Member("java"))


def test_members_tell_what_they_run_and_the_record_what_its_leader_ran():
    record = replace(RECORD, version="2", leaderq="0.1", career_class="m:C")
    ran = {1: Software("9"), 2: Software("1", "0.2", "m:D")}
    notes = {session: ProcessNote(software=one) for session, one in ran.items()}
    view = view_of("c", record, Wishes(), [A_STANDS, B_STANDS], notes=notes)
    leader, other = view.members
    assert (leader.version, leader.leaderq, leader.career_class) == ("2", "0.1", "m:C")
    assert (other.version, other.leaderq, other.career_class) == ("1", "0.2", "m:D")
    later = TermRecord(4, "b", past=past_with(closed(record, ended=1.0, reason="r")))
    assert [each.version for each in view_of("c", later, Wishes(), []).history] == [None, "2"]


def test_records_have_defaults_and_an_empty_znode_holds_them():
    assert decode(TermRecord, b"", path="/p") == TermRecord(0) == TermRecord()
    assert decode(Wishes, b"", path="/p") == Wishes(False, None, None, 0) == Wishes()
    assert decode(Wishes, b"{}", path="/p") == Wishes()
    assert EndDetails() == EndDetails(None, 0.0)


@pytest.mark.parametrize("kind", [TermRecord, Wishes])
@pytest.mark.parametrize("number", ["-1", '"1"', "true", "1.0", "null", "[]"])
def test_a_number_that_cannot_be_one_makes_a_corrupt_record(kind, number):
    name = "number" if kind is TermRecord else "floor"
    with pytest.raises(CorruptRecord, match="raise-floor|pause or resume"):  # noqa: RUF043
        decode(kind, f'{{"{name}":{number}}}'.encode(), path="/p")


@pytest.mark.parametrize("data", [b"[]", b"5", b"{", b"\xff", b"[" * 100_000])
def test_what_is_not_an_object_is_corrupt(data):
    with pytest.raises(CorruptRecord, match="/p"):
        decode(TermRecord, data, path="/p")


def test_damaged_former_terms_are_left_out_and_the_others_kept():
    raw = b'{"number":3,"past":[{"number":2,"past":[{}]},5,{"number":-1},"x",null,{"number":1}]}'
    record = decode(TermRecord, raw, path="/p")
    assert record.past == ({"number": 2, "past": [{}]}, {"number": -1}, {"number": 1})
    assert layout.terms_before(record) == (TermRecord(2), TermRecord(1))
    assert decode(TermRecord, b'{"past":5}', path="/p").past == ()


def test_damaged_wishes_are_logged_once_each_and_are_none(caplog):
    decoder = layout.WishesDecoder("/p/control")
    with caplog.at_level(logging.ERROR):
        said = [decoder.decoded(data) for data in (b"{", b"{", b'{"paused":true}', b"[", b"[")]
    assert said == [None, None, Wishes(True), None, None]
    assert [record.levelname for record in caplog.records] == ["ERROR", "ERROR"]
    assert "/p/control" in caplog.text


def test_the_newest_ten_terms_are_kept_and_of_each_what_is_known():
    former = tuple({"number": number} for number in range(12, 0, -1))
    assert past_with(TermRecord(past=former)) == former
    newest = TermRecord(number=13, candidate="a", error="e", past=former)
    newest = replace(newest, career_class="x:Y", version="1")  # the class is not kept
    kept = {"number": 13, "candidate": "a", "error": "e", "version": "1"}
    assert past_with(newest) == (kept, *former[:9])


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        *((whole, whole) for whole in ("x" * 239, "x" * 240, None)),
        ("x" * 241, "x" * 239 + "\u2026"),
        (" a\n  b ", "a b"),
        ("", None),
    ],
)
def test_of_an_error_the_beginning_is_shown_on_one_line(error, kept):
    details = EndDetails(error)
    assert closed(TermRecord(), ended=1.0, reason="r", details=details).error == kept


@pytest.mark.parametrize(
    ("cool_off_s", "stands_again"), [(0.0, None), (0.49, None), (0.5, 1.5), (1.23456, 2.235)]
)
def test_a_cool_off_is_shown_from_half_a_second_on(cool_off_s, stands_again):
    details = EndDetails(cool_off_s=cool_off_s)
    record = closed(TermRecord(number=4), ended=1.0, reason="r", details=details)
    assert record == TermRecord(4, ended=1.0, reason="r", stands_again=stands_again)


TEXTS = ("candidate", "id", "host", "stage", "reason", "error")
LABELS = ("version", "leaderq", "career_class")
NUMBERS = ("began", "ended", "stands_again", "pid")


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        *((name, "x" * 300, (5, ["x"], True)) for name in TEXTS),
        *((name, "x" * 200, (5, "x" * 201)) for name in LABELS),
        *((name, 1e12 - 0.5, (1e12, -1e12, "5", True)) for name in NUMBERS),
    ],
)
def test_what_is_for_people_and_is_not_of_its_kind_spoils_no_record(name, good, bad):
    for value in (good, None):
        found = decode(TermRecord, json.dumps({name: value}).encode(), path="/t")
        assert getattr(found, name) == value
    for value in bad:
        found = decode(TermRecord, json.dumps({"number": 3, name: value}).encode(), path="/t")
        assert found == TermRecord(3), value
    assert decode(TermRecord, b'{"%s":NaN}' % name.encode(), path="/t") == TermRecord()


def test_who_asked_is_kept_as_far_as_it_can_be_read():
    for said, kept in (([{"by": "x"}, 5], ({"by": "x"},)), (5, ())):
        data = json.dumps({"floor": 2, "asked": said}).encode()
        assert decode(Wishes, data, path="/w") == Wishes(floor=2, asked=kept)
    assert b"asked" not in layout.encode(Wishes(paused=True))
    asked = layout.asked_with(({"by": "x"},), {"by": "y\n z", "at": 5})
    assert asked == ({"by": "y z", "at": 5}, {"by": "x"})


def test_records_with_fields_of_newer_versions_can_stand_in_sets():
    assert len({TermRecord(other={"x": 1}), TermRecord(other={"x": 1})}) == 1
    assert len({Wishes(other={"x": 1}, asked=({},)), Wishes(other={"x": 1}, asked=({},))}) == 1


@pytest.mark.parametrize("odd", ["5", "[1]", "{}", '"\\ud800"'])
def test_a_wish_that_cannot_be_used_stops_nobody(odd):
    raw = b'{"paused":true,"step_down":[3],"successor":%s,"floor":9}' % odd.encode()
    assert decode(Wishes, raw, path="/c") == Wishes(paused=True, floor=9)
