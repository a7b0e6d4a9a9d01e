"""Thousands of lives, each the same for its seed, and the negative controls that lives show."""

from __future__ import annotations

import gc
import hashlib
import importlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from simulation import controls, drain, edits, messages, queues
from simulation.coalescing import CoalescingLife
from simulation.conftest import in_chunks
from simulation.elections import ElectionLife
from simulation.kinds import KINDS
from simulation.schedules import ScheduleLife

ELECTIONS = [kind for kind in KINDS if kind.startswith("elections")]
SCHEDULES = [kind for kind in KINDS if kind.startswith("schedules")]
STORES = ["drains", "drains with offsets in ZooKeeper"]
STORES += ["drains in transactions", "drains into a database"]
WAYS_TO_DRAIN = [kind for kind in KINDS if kind.startswith("drains") and kind not in STORES]
CHUNKS = [
    *(in_chunks(kind, 500, more=100, at_once=100) for kind in ELECTIONS),
    *(in_chunks(kind, 208, more=44, at_once=52) for kind in STORES),
    *(in_chunks(kind, 28, more=224, at_once=28) for kind in WAYS_TO_DRAIN),
    *(in_chunks(kind, 50, more=100, at_once=50) for kind in SCHEDULES),
    in_chunks("rude careers of coroutines", 100, more=200, at_once=100),
    in_chunks("messages", 900, at_once=50),
    in_chunks("messages beside wrong clocks", 100, more=200, at_once=50),
    in_chunks("queues", 500, at_once=25),
    in_chunks("queues with one consumer", 500, at_once=25),
    in_chunks("coalescing", 200, at_once=100),
]
LIVES = [one for chunks in CHUNKS for one in chunks]


@pytest.mark.parametrize(("kind", "seeds"), LIVES)
def test_no_life_breaks_a_promise(kind, seeds, lived):
    with warnings.catch_warnings():
        # A process may die before its loop has begun what it was told.
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        lived(KINDS[kind], seeds)
        if "coroutines" in kind:
            gc.collect()


def test_a_loop_that_begins_is_no_loop_of_other_tasks():
    """Of coroutines that drain under many faults; one of 80 such lives showed it."""
    assert not drain.lead(drain.DrainLife(32, "kafka", in_coroutines=True, faults=8)).problems


def test_lives_of_every_kind_are_led():
    assert {one.values[0] for one in LIVES} == set(KINDS)


MISFITS = ("Attribute", "Type", "Name", "UnboundLocal")
"""Errors of an edit that does not fit the program any more."""


@pytest.mark.parametrize("control", controls.CONTROLS, ids=lambda one: one.name)
def test_a_safety_line_that_is_taken_out_is_missed(control):
    """The tables of docs/design/simulation.md say how many lives each takes."""
    assert not control.lead(control.seed).problems
    with edits.edited(control.edits):
        lives = (control.lead(seed).problems for seed in (control.seed, *range(400)))
        found = next(filter(None, lives), ())
    assert found, "no life shows it; make simulate may find a seed"
    assert not any(f"{misfit}Error" in "".join(found) for misfit in MISFITS), found


@pytest.mark.parametrize(
    ("life", "words"),
    [
        (ElectionLife(8, faults=8), [" inaugurated ", " unit ", " effect ", " fault ", " healed"]),
        (ScheduleLife(1), ["work tick=fast", "work tick=slow", "attempt=2", "as the life wants"]),
        # whose refused acknowledgement once kept the item in the process that had taken it
        (queues.QueueLife(9, consumers=1), [" refused item="]),
        (CoalescingLife(3), ["begun key", "believed key", "stood key", "declined key", "fault"]),
    ],
    ids=lambda one: type(one).__name__,
)
def test_a_life_has_what_is_to_be_judged(life, words):
    history = "\n".join(importlib.import_module(type(life).__module__).lead(life).history)
    assert [word for word in words if word not in history] == []


def test_without_faults_each_message_is_delivered_as_often_as_it_was_given_back():
    history = messages.lead(messages.MessageLife(3, faults=0, rude=0.0)).history
    ids = {line.split()[-1] for line in history if " returned " in line and " consumer" in line}
    delivered = [line.split()[-1] for line in history if " delivered " in line]
    assert len(set(delivered)) > 20
    assert {id for id in delivered if delivered.count(id) > 1} <= ids


_PROGRAM = """
from simulation.kinds import KINDS
for kind, lead in KINDS.items():
    print(kind, *lead(1).history, sep="\\n")
"""


def test_the_same_seed_gives_the_same_history_byte_for_byte_with_any_hash_seed():
    tests = Path(__file__).parents[1]
    given = {**os.environ, "PYTHONPATH": f"{tests.parent}{os.pathsep}{tests}"}
    first, second = (
        subprocess.run(
            [sys.executable, "-c", _PROGRAM],
            env={**given, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "4711")
    )
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest()
    for what in (b"inaugurated", b"handled", b"work tick", b"delivered"):
        assert first.count(what) >= 10, what
