"""Thousands of lives, each the same for its seed, and the negative controls that lives show."""

from __future__ import annotations

import gc
import hashlib
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from leaderq.testing.nemesis.history import What
from simulation.coalescing_controls import COALESCING_CONTROLS
from simulation.conftest import in_chunks
from simulation.controls import CONTROLS
from simulation.drain import DrainLife
from simulation.drain import lead as drain
from simulation.drain_controls import DRAIN_CONTROLS
from simulation.elections import ElectionLife, lead
from simulation.kinds import KINDS
from simulation.message_controls import MESSAGE_CONTROLS
from simulation.queue_controls import QUEUE_CONTROLS
from simulation.schedule_controls import SCHEDULE_CONTROLS
from simulation.schedules import ScheduleLife
from simulation.schedules import lead as lead_schedules

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
CONTROLS_OF_LIVES = [
    *CONTROLS,
    *DRAIN_CONTROLS,
    *SCHEDULE_CONTROLS,
    *MESSAGE_CONTROLS,
    *COALESCING_CONTROLS,
    *QUEUE_CONTROLS,
]


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
    assert not drain(DrainLife(32, "kafka", in_coroutines=True, faults=8)).problems


def test_lives_of_every_kind_are_led():
    assert {one.values[0] for one in LIVES} == set(KINDS)


@pytest.mark.parametrize("control", CONTROLS_OF_LIVES, ids=lambda one: one.name)
def test_a_safety_line_that_is_taken_out_is_missed(control):
    """The tables of docs/design/simulation.md say how many lives each takes."""
    assert not control.problems(control.seed)
    found = control.search(control.seed, 1) or control.search(0, 400)
    assert found is not None, f"{control.name}: no life shows it; make simulate may find a seed"


def test_a_life_has_terms_units_ticks_and_faults_to_judge():
    words = [line.split(" ", 2)[2] for line in lead(ElectionLife(8, faults=8)).history]
    for what in (What.INAUGURATED, What.UNIT, What.EFFECT, What.FAULT, What.HEALED):
        assert any(word.startswith(what.value) for word in words), what
    ticks = "\n".join(lead_schedules(ScheduleLife(1)).history)
    for said in ("work tick=fast", "work tick=slow", "attempt=2", "as the life wants", "fault"):
        assert said in ticks, said


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
