from __future__ import annotations

import itertools
import json
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leaderq.election import software
from leaderq.election.layout import Layout, TermRecord
from leaderq.election.software import ProcessNote, Software, is_newer, newer_in, order_of
from leaderq.errors import NoNode
from leaderq.zookeeper import GetData

ASCENDING = [
    "0", "0.9", "1.0.dev3", "1.0.dev10", "1.0a0.dev1", "1.0a1.dev2", "1.0a1", "1.0-alpha.2",
    "1.0b1", "1.0c1", "1.0rc2", "1.0", "1.0.post0", "1.0.post1.dev4", "1.0.post1", "1.0.post2",
    "1.0-3", "1.0.1", "1.2", "1.10", "v2.0", "2024.11.24", "1!0.1",
]  # fmt: skip
UNKNOWN = [None, "", "main", "abc1234", "1.0-final-2", "1.٢", "1" * 65, "1.0.", " 1.0", "1.0\n"]


def test_versions_are_compared_as_pep_440_says():
    orders = [order_of(each) for each in ASCENDING]
    assert None not in orders
    for (at, one), (other_at, other) in itertools.product(enumerate(ASCENDING), repeat=2):
        assert is_newer(Software(one), Software(other)) is (at > other_at), (one, other)


@pytest.mark.parametrize(
    "same",
    [
        *("0 0.0 v0", "1 1.0 1.0.0 v1 0!1.0", "1.0+abc 1.0+def 1.0"),
        *("1rc1 1.0.RC1 1.0c1 1-pre1 1.0preview1", "1b1 1.0.Beta-1", "1a 1a0 1alpha0"),
        *("1.post 1.post0 1-0 1.r", "1.dev 1.dev0", f"{'0' * 63}1 1"),
    ],
)
def test_what_is_written_in_two_ways_is_the_same(same):
    assert len({order_of(each) for each in same.split()}) == 1


@pytest.mark.parametrize("version", UNKNOWN)
def test_what_cannot_be_compared_is_neither_newer_nor_older(version):
    one, other = Software(version), Software("1.0")
    assert not is_newer(one, other)
    assert not is_newer(other, one)


@pytest.mark.parametrize(
    ("one", "other", "newer"),
    [
        (("1", "2"), ("2", "1"), False),
        ((None, "2"), (None, "1"), True),
        (("main", "2"), ("other", "1"), True),
        (("1", "2"), (None, "1"), False),
        (("1", None), ("1", "1"), False),
        (("1", "2"), ("1", None), False),
    ],
)
def test_where_the_packages_are_the_same_leaderq_decides(one, other, newer):
    assert is_newer(Software(*one), Software(*other)) is newer


VERSIONS = st.sampled_from([None, "x", "1", "1.0", "2", "2.dev1", "2rc1"])
CANDIDATES = st.builds(Software, VERSIONS, VERSIONS)


@given(st.lists(CANDIDATES, min_size=2, max_size=6))
def test_in_no_line_does_everybody_give_way_to_somebody(line):
    assert any(newer_in(line, own, ()) is None for own in line)


def term(version: str, reason: str | None) -> TermRecord:
    ended = None if reason is None else 1.0
    return TermRecord(1, version=version, reason=reason, ended=ended, candidate="a")


@pytest.mark.parametrize(
    ("ends", "failed"),
    [
        ([], False),
        (["withdrawn"], False),
        (["superseded", "failed", "failed"], False),
        (["failed"], True),
        (["budget"], True),
        (["health", "withdrawn"], True),
        ([None], False),
        ([None, "withdrawn", None], False),
        ([None, None], True),
        ([None, None, None], True),
        ([None, "failed"], True),
        (["session", "failed"], False),
    ],
)
def test_a_version_whose_terms_fail_is_not_preferred(ends, failed):
    """``None``: uncleanly."""
    terms = [each for end in ends for each in (term("1", "failed"), term("2", end))]
    assert software.has_failed(Software("2"), terms) is failed
    wanted = None if failed else Software("2")
    assert newer_in([Software("1"), Software("2")], Software("1"), terms) == wanted


def test_the_next_newer_one_leads_where_the_first_has_failed():
    line = [Software("2"), Software("3")]
    assert newer_in(line, Software("1"), [term("2", "failed")]) == Software("3")


@pytest.mark.parametrize(
    ("said", "ran"),
    [
        ({"host": {}, "pid": "1", "version": "2"}, ("2",)),
        ({"version": "2", "leaderq": "1", "career_class": "a:B"}, ("2", "1", "a:B")),
        ({"version": 2, "leaderq": ["1"], "career_class": {}}, ()),
        ({"version": "9" * 65, "leaderq": "1\n2"}, ()),
        ({"version": "9" * 64, "leaderq": ""}, ("9" * 64,)),
        ({"career_class": "m" * 120}, (None, None, "m" * 120)),
        ({"career_class": "m" * 500}, (None, None, "…" + "m" * 119)),
        ([], ()),
        (None, ()),
    ],
)
def test_what_a_process_says_cannot_hurt(said, ran):
    known = ProcessNote(software=Software(*ran))
    assert ProcessNote.decode(json.dumps(said).encode()) == known
    assert ProcessNote.decode(b'{"host": "h", "pid": 1}') == ProcessNote("h", 1)
    assert ProcessNote.decode(b"{") == ProcessNote.decode(b"[" * 100_000) == ProcessNote()


def test_what_candidates_run_is_read_by_their_sessions_once_each():
    layout, names = Layout("/r", "c"), ["x", "y", "gone", "z", "java"]
    steps = software.reading(layout, names)
    assert next(steps) == [GetData(layout.candidate(name)) for name in names]
    owners = [SimpleNamespace(ephemeral_owner=owner) for owner in (5, 9, 5, 7)]
    found = [(b"", owner) for owner in owners]
    processes = [GetData(layout.process(session)) for session in (5, 7, 9)]
    assert steps.send([*found[:2], NoNode("x"), *found[2:]]) == processes
    notes = [ProcessNote(software=Software(version)).encode() for version in "12"]
    with pytest.raises(StopIteration) as ended:
        steps.send([(notes[0], None), NoNode("x"), (notes[1], None)])
    one, two = Software("1"), Software("2")
    assert ended.value.value == {"x": one, "y": two, "z": one, "java": Software()}


def test_a_process_note_is_read_as_it_was_written_and_says_only_what_is_known():
    note = ProcessNote("h", 1, Software("2", None, "a:B"))
    assert ProcessNote.decode(note.encode()) == note
    said = {"host": "h", "pid": 1, "version": "2", "career_class": "a:B"}
    assert json.loads(note.encode()) == said
