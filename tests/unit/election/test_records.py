"""What stands in the term and control znodes."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from leaderq.election.layout import (
    EndDetails,
    TermRecord,
    Wishes,
    closed,
    decode,
    encode,
    next_number,
    past_with,
)
from leaderq.election.observer import CandidateNode, Member, view_of

RECORD = TermRecord(
    number=3,
    candidate="a",
    id="_c_x-latch-0000000001",
    host="h",
    pid=7,
    stage="execution",
    began=1.5,
)
A_STANDS = CandidateNode(str(RECORD.id), "a", 1)
B_STANDS = CandidateNode("_c_y-latch-0000000002", "b", 2)


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        TermRecord(),
        replace(RECORD, error="E: x", past=({"number": 2},)),
        Wishes(),
        Wishes(True, 4, "b", 9),
    ],
)
def test_what_is_written_is_read_again(record):
    assert decode(type(record), encode(record), path="/p") == record


def test_fields_of_a_newer_version_are_ignored():
    assert decode(Wishes, b'{"paused": true, "colour": "red"}', path="/p") == Wishes(paused=True)


def test_numbers_are_dense_and_never_below_an_operators_floor():
    assert next_number(RECORD, Wishes()) == 4
    assert next_number(RECORD, Wishes(floor=100)) == 100
    assert next_number(RECORD, Wishes(floor=2)) == 4


def test_a_leader_is_who_the_record_names_and_still_stands():
    standing = [A_STANDS, B_STANDS]
    view = view_of("c", RECORD, Wishes(), standing)
    assert (view.leader, view.pid, view.stage, view.candidates) == ("a", 7, "execution", ("a", "b"))


def test_nobody_leads_when_the_named_znode_is_gone_or_the_term_has_ended():
    gone = view_of("c", RECORD, Wishes(), [B_STANDS])
    assert (gone.leader, gone.pid, gone.term) == (None, None, 3)
    over = view_of("c", closed(RECORD, ended=9.0, reason="transfer"), Wishes(), [A_STANDS])
    assert (over.leader, over.reason, over.ended) == (None, "transfer", 9.0)


def test_a_record_without_news_is_written_as_it_always_was():
    """Older versions read and write these names."""
    names = ["number", "candidate", "id", "host", "pid", "stage", "began", "ended", "reason"]
    assert list(json.loads(encode(RECORD))) == names


def test_those_who_cool_off_are_shown_until_they_stand_again_or_their_time_is_over():
    failed = closed(
        RECORD, ended=10.0, reason="failed", details=EndDetails("ValueError: bad", 30.0)
    )
    later = replace(
        RECORD, number=4, candidate="b", id=B_STANDS.name, host="h2", pid=8, past=past_with(failed)
    )
    later = closed(later, ended=12.0, reason="failed", details=EndDetails("ValueError: bad", 5.0))
    view = view_of("c", later, Wishes(), [], now=13.0)
    assert view.error == "ValueError: bad"
    assert view.cooling_off == (Member("b", "h2", 8, 17.0), Member("a", "h", 7, 40.0))
    assert [each.number for each in view.history] == [4, 3]
    assert view_of("c", later, Wishes(), [A_STANDS], now=13.0).cooling_off == (
        Member("b", "h2", 8, 17.0),
    )
    assert view_of("c", later, Wishes(), [], now=41.0).cooling_off == ()


def test_a_later_term_of_a_candidate_ends_what_an_earlier_one_said_of_it():
    failed = closed(RECORD, ended=10.0, reason="failed", details=EndDetails("E", 300.0))
    again = closed(
        replace(RECORD, number=4, past=past_with(failed)), ended=11.0, reason="withdrawn"
    )
    assert view_of("c", again, Wishes(), [], now=12.0).cooling_off == ()


def test_members_have_the_places_that_their_sessions_say():
    latch = CandidateNode("_c_z-latch-0000000003", "java", 9)
    view = view_of("c", RECORD, Wishes(), [A_STANDS, B_STANDS, latch], places={2: ("h2", 8)})
    assert view.members == (Member("a", "h", 7), Member("b", "h2", 8), Member("java"))
