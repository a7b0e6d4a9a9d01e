"""Lives of queues, each the same for its seed; and their judges on bad histories."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from leaderq.queues import DistributedPriorityQueue
from leaderq.testing.nemesis.history import Kind
from leaderq.testing.simulation.scheduler import EPOCH_S
from simulation.conftest import SHARE
from simulation.control import NegativeControl
from simulation.queue_controls import QUEUE_CONTROLS
from simulation.queues import (
    QueueLife,
    QueueLine,
    Rules,
    Step,
    backed_off,
    held_by_one,
    in_order,
    lead,
    never_before_its_time,
    nothing_lost,
)

_CHUNK = int(25 * SHARE)
PUTTING, PUT, BEGUN, DONE = Step.PUTTING, Step.PUT, Step.BEGUN, Step.DONE
LOCKING, WITHOUT = Rules(), Rules(is_locking=False)


@pytest.mark.parametrize("chunk", range(20))
@pytest.mark.parametrize("consumers", [1, 3])
def test_nothing_is_lost_held_by_two_early_or_out_of_order(
    consumers: int, chunk: int, lived: Callable[..., None]
) -> None:
    def one(seed: int) -> object:
        return lead(QueueLife(seed, consumers=consumers))

    lived(one, range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


def test_an_item_whose_acknowledgement_was_refused_comes_again_to_the_only_consumer() -> None:
    """It was held back in the process that had taken it, for as long as that lived."""
    for seed in range(600):
        verdict = lead(QueueLife(seed, consumers=1))
        assert not verdict.problems, seed
        if any(" refused item=" in line for line in verdict.history):
            return
    pytest.fail("no acknowledgement was refused in 600 lives")


def test_a_late_acknowledgement_of_a_value_that_is_not_the_last_is_refused() -> None:
    """Nothing was written for it, so nobody found out (seed 870, and five more of these)."""
    for seed in range(860, 880):
        life = QueueLife(seed, is_locking=True, kinds=(Kind.FREEZE_WORKER,), faults=12)
        assert not lead(life).problems, seed


@pytest.mark.parametrize("control", QUEUE_CONTROLS, ids=lambda control: control.name)
def test_a_safety_line_of_a_queue_that_is_taken_out_is_missed(control: NegativeControl) -> None:
    assert not control.problems(control.seed)
    found = control.search(control.seed, 1) or control.search(0, int(300 * SHARE))
    assert found is not None, f"{control.name}: no life shows it"


def _lines(*told: tuple[Step, str, str]) -> list[QueueLine]:
    return [QueueLine(float(at), step, who, item) for at, (step, who, item) in enumerate(told)]


def test_what_was_put_and_never_done_is_lost() -> None:
    lines = _lines((PUT, "p", "x"), (BEGUN, "c", "x"))
    assert nothing_lost(lines, LOCKING) == ["x was put at 0.000, and never done"]
    assert not nothing_lost([*lines, QueueLine(2, DONE, "c", "x")], LOCKING)


def test_without_a_lock_path_only_a_death_of_a_consumer_excuses_a_loss() -> None:
    lines = _lines((PUT, "p", "x"), (Step.DIED, "p.1", ""))
    assert nothing_lost(lines, WITHOUT)
    assert not nothing_lost([*lines, QueueLine(2, Step.DIED, "c0.1")], WITHOUT)
    assert nothing_lost([*lines, QueueLine(2, Step.DIED, "c0.1")], LOCKING)


def test_what_lies_in_zookeeper_at_the_end_is_seen() -> None:
    assert nothing_lost(_lines((Step.LEFT, "", "queue-1")), WITHOUT)


@pytest.mark.parametrize("rules", [LOCKING, WITHOUT])
def test_two_at_work_on_one_item_are_seen(rules: Rules) -> None:
    assert held_by_one(_lines((BEGUN, "a", "x"), (BEGUN, "b", "x")), rules)
    assert held_by_one(_lines((BEGUN, "a", "x"), (DONE, "a", "x"), (BEGUN, "b", "x")), rules)
    assert not held_by_one(
        _lines((BEGUN, "a", "x"), (Step.RAISED, "a", "x"), (BEGUN, "b", "x")), rules
    )


@pytest.mark.parametrize("step", [Step.DIED, Step.SESSION_OVER])
def test_only_with_a_lock_path_the_end_of_a_consumer_frees_its_item(step: Step) -> None:
    lines = _lines((BEGUN, "a", "x"), (step, "a", "x"), (BEGUN, "b", "x"))
    assert not held_by_one(lines, LOCKING)
    assert held_by_one(lines, WITHOUT)


def test_late_and_second_acknowledgements_are_seen() -> None:
    for acked in (Step.ACKED, Step.PART_ACKED):
        late = _lines((BEGUN, "a", "x"), (Step.SESSION_OVER, "a", "x"), (acked, "a", "x"))
        assert held_by_one(late, LOCKING)
    once = _lines((BEGUN, "a", "x"), (DONE, "a", "x"), (Step.ACKED, "a", "x"))
    assert not held_by_one(once, LOCKING)
    assert held_by_one([*once, QueueLine(3, Step.ACKED, "a", "x")], LOCKING)
    after = [*once, QueueLine(3, Step.DIED, "a"), QueueLine(4, BEGUN, "b", "x")]
    assert held_by_one(after, LOCKING)


def test_an_item_begun_before_its_time_is_seen() -> None:
    due_ms = round((EPOCH_S + 2.0) * 1000)
    put = QueueLine(0.0, PUTTING, "p", "x", due_ms)
    assert never_before_its_time([put, QueueLine(1.9, BEGUN, "c", "x")])
    assert not never_before_its_time([put, QueueLine(2.0, BEGUN, "c", "x")])


def test_an_item_begun_before_its_back_off_is_over_is_seen() -> None:
    failed = [QueueLine(0.0, BEGUN, "a", "x"), QueueLine(1.0, Step.RAISED, "a", "x")]
    assert backed_off([*failed, QueueLine(1.02, BEGUN, "b", "x")])
    assert not backed_off([*failed, QueueLine(1.03, BEGUN, "b", "x")])


def test_items_begun_out_of_order_are_seen() -> None:
    puts = _lines((PUTTING, "p", "x"), (PUT, "p", "x"), (PUTTING, "p", "y"), (PUT, "p", "y"))
    rules = Rules(is_ordered=True)
    assert in_order([*puts, QueueLine(5.0, BEGUN, "c", "y")], rules)
    assert not in_order([*puts, QueueLine(5.0, BEGUN, "c", "x")], rules)


def test_a_less_urgent_item_begun_first_is_seen() -> None:
    rules = Rules(is_ordered=True, recipe=DistributedPriorityQueue)
    puts = [
        QueueLine(float(at), step, "p", item, rank)
        for at, (item, rank) in enumerate((("low", 2), ("urgent", 0)))
        for step in (PUTTING, PUT)
    ]
    assert in_order([*puts, QueueLine(5.0, BEGUN, "c", "low")], rules)
    assert not in_order([*puts, QueueLine(5.0, BEGUN, "c", "urgent")], rules)


_PROGRAM = """
from simulation.queues import QueueLife, lead
for seed in range(8):
    print("\\n".join(lead(QueueLife(seed, faults=8)).history))
"""


def _history(hash_seed: str) -> bytes:
    tests = Path(__file__).parents[1]
    path = os.pathsep.join(map(str, [tests.parent, tests]))
    given = {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": hash_seed}
    program = [sys.executable, "-c", _PROGRAM]
    return subprocess.run(program, env=given, capture_output=True, check=True).stdout


def test_the_same_seed_gives_the_same_history_of_a_queue_with_any_hash_seed() -> None:
    first, second = _history("1"), _history("4711")
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest()
    assert first.count(b" done ") > 100
