"""The gate before each request to join: shut with the term, or by whoever finishes it."""

from __future__ import annotations

import pytest
from terms import open_term

from leaderq.errors import Deposed, KafkaError
from leaderq.kafka.clients.kafka_python_consumer import _GatedAssignor
from leaderq.kafka.consuming.term_consumer import JoinGate
from leaderq.term import Reason


def test_the_gate_is_open_while_the_term_lasts() -> None:
    JoinGate(open_term(7))()


def test_a_gate_that_is_shut_refuses_although_the_lease_lasts() -> None:
    gate = JoinGate(open_term(7))
    gate.is_shut = True
    with pytest.raises(Deposed):
        gate()


def test_the_gate_refuses_when_the_term_is_over() -> None:
    over = open_term(7)
    gate = JoinGate(over)
    over.wind_up(Reason.LEASE)
    over.close()
    with pytest.raises(Deposed):
        gate()


def test_the_assignor_that_is_asked_before_each_join_asks_the_gate() -> None:
    assignor = _GatedAssignor()
    with pytest.raises(KafkaError, match="kept warm"):
        assignor.metadata({"t"})
    gate = JoinGate(open_term(7))
    assignor.allowed = gate
    assignor.metadata({"t"})
    gate.is_shut = True
    with pytest.raises(Deposed):
        assignor.metadata({"t"})
