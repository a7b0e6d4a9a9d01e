"""What stands in the term and control znodes."""

from __future__ import annotations

import pytest

from leaderq.election.layout import TermRecord, Wishes, closed, decode, encode, next_number
from leaderq.election.observer import view_of
from leaderq.errors import CorruptRecord

RECORD = TermRecord(number=3, candidate="a", id="_c_x-latch-0000000001", host="h", pid=7, stage="execution", began=1.5)


@pytest.mark.parametrize("record", [RECORD, TermRecord(), Wishes(), Wishes(True, 4, "b", 9)])
def test_what_is_written_is_read_again(record):
    assert decode(type(record), encode(record), path="/p") == record


def test_nothing_written_yet_is_an_empty_record():
    assert decode(TermRecord, b"", path="/p") == TermRecord()


def test_fields_of_a_newer_version_are_ignored():
    assert decode(Wishes, b'{"paused": true, "colour": "red"}', path="/p") == Wishes(paused=True)


@pytest.mark.parametrize("data", [b"{", b"[]", b"7", b'{"number": "3"}', b'{"number": -1}', b'{"number": true}', b"\xff"])
def test_what_leaderq_did_not_write_is_refused_with_its_path(data):
    with pytest.raises(CorruptRecord, match="/leaderq/c/term"):
        decode(TermRecord, data, path="/leaderq/c/term")


def test_numbers_are_dense_and_never_below_an_operators_floor():
    assert next_number(RECORD, Wishes()) == 4
    assert next_number(RECORD, Wishes(floor=100)) == 100
    assert next_number(RECORD, Wishes(floor=2)) == 4


def test_a_closed_record_says_when_and_why():
    assert closed(RECORD, ended=9.0, reason="transfer").reason == "transfer"


def test_a_leader_is_who_the_record_names_and_still_stands():
    standing = [(str(RECORD.id), "a"), ("_c_y-latch-0000000002", "b")]
    view = view_of("c", RECORD, Wishes(), standing)
    assert (view.leader, view.pid, view.stage, view.candidates) == ("a", 7, "execution", ("a", "b"))


def test_nobody_leads_when_the_named_znode_is_gone_or_the_term_has_ended():
    gone = view_of("c", RECORD, Wishes(), [("_c_y-latch-0000000002", "b")])
    assert (gone.leader, gone.pid, gone.term) == (None, None, 3)
    over = view_of("c", closed(RECORD, ended=9.0, reason="transfer"), Wishes(), [(str(RECORD.id), "a")])
    assert (over.leader, over.reason, over.ended) == (None, "transfer", 9.0)
