"""Before a career reads: the gate, the coordinator, and who else is in the group."""

from __future__ import annotations

from itertools import chain, repeat
from types import SimpleNamespace
from typing import Any
from unittest import mock

import confluent_kafka
import pytest
from kafka import errors as native
from terms import open_term

from leaderq.config import KafkaSecurity
from leaderq.errors import AccessRefused, ConnectionLost, Deposed, KafkaError, OffsetOutOfRange
from leaderq.kafka.clients.confluent_connection import ConfluentConnection
from leaderq.kafka.clients.confluent_consumer import ConfluentConsumer
from leaderq.kafka.clients.consumer import ConsumerSettings, KafkaAway, until_answered
from leaderq.kafka.clients.kafka_python_connection import errors_translated
from leaderq.kafka.clients.kafka_python_consumer import KafkaPythonConsumer
from leaderq.kafka.consuming.term_consumer import JoinGate
from leaderq.kafka.groups import Deployment, GroupMember, GroupView, rivalry
from leaderq.kafka.record import Partition
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


CODES = {confluent_kafka.KafkaError(code).name(): code for code in range(-200, -100)}


@pytest.mark.parametrize("name", ["_TRANSPORT", "_ALL_BROKERS_DOWN", "_DESTROY_BROKER"])
def test_a_broker_that_goes_passes_by_itself(name):
    connection = ConfluentConnection("kafka:9092", KafkaSecurity())
    error = connection.error(confluent_kafka.KafkaError(CODES[name]), "committing")
    assert isinstance(error, KafkaAway)


def test_a_position_that_is_gone_is_told_to_whoever_polls_not_to_who_waits_for_a_commit():
    where = Partition("t", 0)
    gone = confluent_kafka.KafkaError(CODES["_AUTO_OFFSET_RESET"])
    record = confluent_kafka.Message("t", 0, 4, b"k", b"v")
    messages = [record, confluent_kafka.Message("t", 0, error=gone)]
    consumer = ConfluentConsumer(ConsumerSettings("x:9092", ("t",), "g", "m"))

    def consume(most: int, _wait_s: float) -> list[Any]:
        taken, messages[:] = messages[:most], messages[most:]
        if not messages:
            consumer._on_commit(None, [])  # it is answered when all of them are taken
        return taken

    consumer._client, consumer._held = mock.Mock(consume=consume), frozenset({where})
    consumer.seek({where: 4})
    assert consumer.commit({where: 4}, "").done(60)
    with pytest.raises(OffsetOutOfRange):
        consumer.poll(0.0, 10)
    assert [row.offset for row in consumer.poll(0.0, 10)[where]] == [4]


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


class _Noted:
    """An offset as confluent-kafka tells one that kafka-python has committed (B27)."""

    topic, partition, offset, leader_epoch, error = "t", 0, 7, -1, None

    @property
    def metadata(self) -> str:
        return b"x\xff".decode()


def test_an_offset_whose_note_is_no_text_is_an_offset():
    consumer = ConfluentConsumer(ConsumerSettings("x:9092", ("t",), "g", "m"))
    consumer._client = mock.Mock(committed=lambda asked, timeout_s: [_Noted()])
    assert consumer.committed(1.0, [Partition("t", 0)]) == {Partition("t", 0): 7}
    assert consumer.notes == frozenset()
