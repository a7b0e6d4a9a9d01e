"""Before a career reads: the gate, the coordinator, and who else is in the group."""

from __future__ import annotations

from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
from kafka import errors as native
from terms import open_term

from leaderq.errors import AccessRefused, ConnectionLost, Deposed, KafkaError
from leaderq.kafka.clients.consumer import ConsumerSettings, KafkaAway, until_answered
from leaderq.kafka.clients.kafka_python_connection import errors_translated
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer
from leaderq.kafka.consuming.term_consumer import JoinGate
from leaderq.kafka.groups import Deployment, GroupMember, GroupView, rivalry
from leaderq.term import Reason


@pytest.mark.parametrize("is_shut", [True, False])
def test_a_gate_refuses_when_it_is_shut_although_the_lease_lasts_and_when_the_term_is_over(is_shut):
    gate = JoinGate(term := open_term(7))
    gate.is_shut = is_shut
    if not is_shut:
        term.wind_up(Reason.LEASE)
        term.close()
    with pytest.raises(Deposed):
        gate()


def test_the_assignor_that_is_asked_before_each_join_asks_the_gate():
    consumer = KafkaPythonConsumer(ConsumerSettings("nowhere:9092", ("t",), "g", "m"))
    assignor = consumer._assignor
    with pytest.raises(KafkaError, match="kept warm"):
        assignor.metadata({"t"})
    gate = JoinGate(open_term(7))
    consumer._allowed = gate
    assignor.metadata({"t"})
    gate.is_shut = True
    with pytest.raises(Deposed):
        assignor.metadata({"t"})


@pytest.mark.parametrize(
    ("error", "times", "timeout_s", "raised"),
    [
        (native.CoordinatorLoadInProgressError(), 2, 60, None),
        (native.CoordinatorNotAvailableError(), 10**6, 0.2, KafkaAway),
        (native.GroupAuthorizationFailedError(), 1, 60, AccessRefused),
    ],
)
def test_it_is_asked_again_for_so_long_until_the_group_has_a_coordinator(
    error, times, timeout_s, raised
):
    answers = mock.Mock(side_effect=chain(repeat(error, times), ["answer"]))

    def ask() -> object:
        with errors_translated("asking for offsets", "somewhere:9092"):
            return answers()

    if raised is None:
        assert until_answered(ask, timeout_s) == "answer"
        return
    with pytest.raises(raised, match="asking for offsets at Kafka 'somewhere:9092'"):
        until_answered(ask, timeout_s)
    assert raised is KafkaAway or answers.call_count == 1


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
    assert (view.trouble("billing") is not None) is is_excluded


def test_deployments_with_other_roots_or_ensembles_are_rivals_and_its_own_notes_are_not():
    def at(czxid: int) -> Any:
        return SimpleNamespace(exists=lambda path: SimpleNamespace(czxid=czxid, ctime_ms=9))

    here, there = Deployment.of(at(1), "/x"), Deployment.of(at(2), "/x")
    other = Deployment.of(at(1), "/y")
    notes = {f"leaderq term 3{one.mark}" for one in (here, there, other)} | {"", "somebody's own"}
    assert here.rivals(notes) == ("/x", "/y")
    for letters_too_many in ("", "U", "\x7f", "#"):
        assert here.rivals({f"leaderq term 7{here.mark}{letters_too_many}"}) == ()
    assert "root '/x', '/y', leads this group" in rivalry(here.rivals(notes))


def test_where_it_is_not_known_which_deployment_this_is_there_are_no_rivals():
    def broken(path: str) -> None:
        raise ConnectionLost("no")

    for session in (SimpleNamespace(exists=broken), SimpleNamespace(exists=lambda path: None)):
        made: Any = session
        here = Deployment.of(made, "/x")
        assert (here.mark, here.rivals({"leaderq term 3 of leaderq /y#1"})) == ("", ())
