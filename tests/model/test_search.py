"""The search over the real decision table and the real lease, and what it finds in broken ones."""

from __future__ import annotations

import os
import random
import re
from pathlib import Path
from typing import Any

import pytest

from leaderq.election.decision import Input, Role
from model.assumptions import World, sentences
from model.controls import CONTROLS, election
from model.election import Election
from model.lease import LeaseModel
from model.search import Found, search
from model.state import Budget, Candidate, Draft

DOCS = Path(__file__).parents[2] / "docs"
# Read before the fixture that takes all such variables away.
IS_DEEP = os.environ.get("LEADERQ_MODEL") == "deep"
deep = pytest.mark.skipif(not IS_DEEP, reason="takes minutes: LEADERQ_MODEL=deep")

# Each with the least number of states that it must visit: fewer would prove nothing.
ELECTIONS = {
    "three terms, nothing breaks": (Election(), 40_000),
    "a term is told to end": (election(told=1), 10_000),
    "a session expires": (election(expired=1), 150_000),
    "a connection breaks": (election(cuts=1), 40_000),
    "a process dies": (election(crashes=1), 120_000),
    "the first in line lets another one lead": (election(passed=1), 10_000),
    "an answer is not waited for": (election(patience=1), 25_000),
    "an operator deletes the znode of a leader that writes": (
        election(deleted=1, writes=1),
        120_000,
    ),
}
FINER = World(6, 1, drifts=True)
DEEP = {
    "three terms, one told to end": (election(terms=3, told=1), 80_000),
    "three terms, a session expires": (election(terms=3, expired=1), 500_000),
    "a request is carried out after its connection broke": (election(cuts=1, overdue=1), 100_000),
    "a session is given up": (election(replaced=1), 150_000),
    "a candidate is withdrawn": (election(withdrawn=1), 40_000),
    "a connection breaks and a session expires": (election(cuts=1, expired=1), 500_000),
    "finer time, half a tick, a clock that loses": (election(FINER, expired=1), 500_000),
    "three candidates": (election(candidates=3), 100_000),
}
LEASES = {
    "the lease": (LeaseModel(), 80_000),
    "a unit under the guardian": (LeaseModel(guardian=True), 80_000),
    "the same with ticks of T/3": (LeaseModel(World(12, 2, True), guardian=True), 50_000),
    "the same with ticks of T/6": (LeaseModel(World(12, 1, True), guardian=True), 25_000),
}


def searched(name: str, model: Any) -> Found:
    found = search(model)
    print(found.told(name), found.story() if found.rule else "", sep="\n")
    return found


def holds(name: str, model: Any, least: int) -> None:
    found = searched(name, model)
    assert found.rule == ""
    assert found.states >= least


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", [*ELECTIONS, *(pytest.param(one, marks=deep) for one in DEEP)])
def test_no_state_of_the_election_breaks_a_rule_or_is_a_dead_end(name):
    holds(name, *(ELECTIONS | DEEP)[name])


@pytest.mark.parametrize("name", LEASES)
def test_the_lease_is_over_before_the_session_under_the_assumptions(name):
    holds(name, *LEASES[name])


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_what_is_broken_on_purpose_is_found(control):
    found = searched(control.name, control.model)
    assert found.rule == control.rule
    assert found.trace


def test_the_lease_of_before_is_outlived_by_a_follower_that_stalls():
    """The finding of the review: what was acknowledged late was not known to the leader."""
    (control,) = [each for each in CONTROLS if each.name.startswith("the lease of before")]
    found = searched(control.name, control.model)
    assert found.trace[-1] == "the session ends, and another candidate leads"
    acknowledged = found.trace.index("k is answered")
    touches = "a pong that names the session reaches the leader of the ensemble"
    assert touches not in found.trace[acknowledged:]


def test_every_role_and_every_signal_of_the_table_is_reached():
    """A model that never comes to a row of the table says nothing about it."""
    asked: set[tuple[Role, Input]] = set()

    class Noting(Election):
        def _take(self, draft: Draft, one: Candidate, signal: Input) -> None:
            asked.add((one.role, signal))
            super()._take(draft, one, signal)

    model = Noting(budget=Budget(*[1] * len(Budget._fields)), terms=9)
    chance = random.Random(7)
    for _ in range(150):
        state = model.beginning()
        for _ in range(120):
            state = chance.choice([there for _, there in model.moves(state)])
    assert {role for role, _ in asked} == set(Role)
    assert {signal for _, signal in asked} == set(Input)


def test_the_documentation_quotes_the_assumptions_word_for_word():
    text = (DOCS / "guarantees.rst").read_text()
    section = text.split("Assumptions of the model\n---", 1)[1].split("\n\n", 1)[1]
    quoted = [" ".join(each.split()) for each in re.split(r"^\* ", section, flags=re.M)[1:]]
    quoted[-1] = quoted[-1].split(" :doc:")[0]
    assert quoted == sentences()
    page = " ".join((DOCS / "design" / "model.md").read_text().split())
    assert [each for each in sentences() if each not in page] == []


def test_the_documentation_names_every_control():
    page = (DOCS / "design" / "model.md").read_text()
    assert [each.name for each in CONTROLS if f"| {each.name} |" not in page] == []
