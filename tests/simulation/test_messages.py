"""Lives of a queue of messages, and the judge shown bad histories."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from simulation.conftest import SHARE
from simulation.control import NegativeControl
from simulation.kinds import KINDS
from simulation.message_controls import MESSAGE_CONTROLS
from simulation.messages import Did, MessageLife, Step, judge, lead, undone

_CHUNK = int(25 * SHARE)


@pytest.mark.parametrize("chunk", range(40))
def test_what_was_pushed_is_acknowledged_once_whoever_dies(
    chunk: int, lived: Callable[..., None]
) -> None:
    lived(KINDS["messages"], range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


@pytest.mark.parametrize("control", MESSAGE_CONTROLS, ids=lambda control: control.name)
def test_a_line_of_messages_that_is_taken_out_is_missed(control: NegativeControl) -> None:
    assert not control.problems(control.seed)
    found = control.search(control.seed, 1) or control.search(0, int(300 * SHARE))
    assert found is not None, f"{control.name}: no life shows it"


def test_without_faults_each_message_is_delivered_as_often_as_it_was_given_back() -> None:
    history = lead(MessageLife(3, faults=0, rude=0.0)).history
    ids = {line.split()[-1] for line in history if " returned " in line and " consumer" in line}
    delivered = [line.split()[-1] for line in history if " delivered " in line]
    assert len(set(delivered)) > 20
    assert {id for id in delivered if delivered.count(id) > 1} <= ids


def step(what: Did, id: str = "a", process: str = "c", **more: Any) -> Step:
    return Step(more.pop("at_s", 0.0), what, id, process, **{"due_s": 1e9, **more})


PUSHED, GIVEN, ACKED = step(Did.PUSHED, due_s=0.0), step(Did.DELIVERED), step(Did.ACKNOWLEDGED)
_B = {"id": "b", "group": "g"}


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("nobody has acknowledged", [PUSHED, GIVEN]),
        ("acknowledged twice", [PUSHED, GIVEN, ACKED, ACKED]),
        ("after it was acknowledged", [PUSHED, GIVEN, ACKED, GIVEN]),
        ("after it was killed", [PUSHED, step(Did.KILLED), GIVEN]),
        ("which d had", [PUSHED, GIVEN, GIVEN._replace(process="d"), ACKED]),
        ("and d held it", [PUSHED, GIVEN._replace(beside="d"), ACKED]),
        ("a lease that was over", [PUSHED, GIVEN._replace(due_s=0.0), ACKED]),
        ("is left", [step(Did.LEFT)]),
        ("before its time", [step(Did.PUSHING, due_s=1.0), PUSHED, GIVEN, ACKED]),
        (
            "not given to c",
            [
                PUSHED,
                step(Did.HEALED, ""),
                step(Did.EMPTY, "", due_s=20.0, at_s=21.0),
                step(Did.EMPTY, "", due_s=23.0, at_s=24.0),
                ACKED,
            ],
        ),
        (
            "s after b",
            [
                *(step(Did.PUSHING, id, due_s=0.0) for id in "ab"),
                PUSHED,
                step(Did.PUSHED, "b", rank=1, due_s=0.0),
                step(Did.DELIVERED, "b", rank=1, at_s=2.0),
                step(Did.DELIVERED, at_s=4.0),
                ACKED,
                step(Did.ACKNOWLEDGED, "b"),
            ],
        ),
        (
            "before a, of the same group",
            [
                PUSHED._replace(group="g"),
                step(Did.PUSHING, due_s=0.0, at_s=1.0, **_B),
                step(Did.DELIVERED, at_s=2.0, **_B),
                step(Did.SETTLING),
            ],
        ),
    ],
)
def test_the_judge_of_messages_sees(said: str, told: list[Step]) -> None:
    problems = judge(told)
    assert [said in one for one in problems] == [True], problems


def test_the_judge_of_messages_lets_pass_what_is_right() -> None:
    assert judge([PUSHED, GIVEN, ACKED]) == []
    assert undone([PUSHED, GIVEN]) == ["a"]
    assert undone([PUSHED, GIVEN, step(Did.SETTLING)]) == []


def test_the_same_seed_gives_the_same_life() -> None:
    assert lead(MessageLife(5)).history == lead(MessageLife(5)).history
