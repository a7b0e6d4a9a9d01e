"""Who is in a group, and of which deployment, in words."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.errors import ConnectionLost
from leaderq.kafka.groups import Deployment, GroupMember, GroupView, rivalry

OURS = GroupMember("billing", "leaderq-billing-a", "/10.0.0.1")
THEIRS = [GroupMember(None, f"app-{n}", "/10.0.0.2") for n in range(7)]


@pytest.mark.parametrize(
    ("kind", "assignor", "members", "is_excluded"),
    [
        ("consumer", "range", [OURS, *THEIRS], False),
        ("consumer", "cooperative-sticky", THEIRS, True),
        ("consumer", "cooperative-sticky", [], False),
        ("connect", "", THEIRS, True),
        ("", "", [], False),
    ],
)
def test_a_career_is_kept_out_by_members_with_another_rule(kind, assignor, members, is_excluded):
    view = GroupView("g", "Stable", kind, assignor, tuple(members))
    assert view.excludes_careers is is_excluded
    assert (view.trouble("billing") is not None) is is_excluded


def test_deployments_with_other_roots_or_ensembles_are_rivals_and_its_own_notes_are_not():
    def at(czxid: int) -> Any:
        return SimpleNamespace(exists=lambda path: SimpleNamespace(czxid=czxid, ctime_ms=9))

    here, there = Deployment.of(at(1), "/x"), Deployment.of(at(2), "/x")
    other = Deployment.of(at(1), "/y")
    notes = {f"leaderq term 3{one.mark}" for one in (here, there, other)} | {"", "somebody's own"}
    assert here.rivals(notes) == ("/x", "/y")
    assert here.rivals({f"leaderq term 7{here.mark}"}) == ()
    assert "root '/x', '/y', leads this group" in rivalry(here.rivals(notes))


def test_where_it_is_not_known_which_deployment_this_is_there_are_no_rivals():
    def broken(path: str) -> None:
        raise ConnectionLost("no")

    for session in (SimpleNamespace(exists=broken), SimpleNamespace(exists=lambda path: None)):
        made: Any = session
        here = Deployment.of(made, "/x")
        assert (here.mark, here.rivals({"leaderq term 3 of leaderq /y#1"})) == ("", ())
