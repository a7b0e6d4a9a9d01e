"""Messages: a life without faults, and the judge shown bad histories."""

from __future__ import annotations

from typing import Any

import pytest

from simulation.messages import Did, MessageLife, Step, judge, lead, undone


def test_without_faults_each_message_is_delivered_as_often_as_it_was_given_back():
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
def test_the_judge_of_messages_sees(said, told):
    problems = judge(told)
    assert [said in one for one in problems] == [True], problems


def test_the_judge_of_messages_lets_pass_what_is_right():
    assert judge([PUSHED, GIVEN, ACKED]) == []
    assert judge([PUSHED, GIVEN, ACKED, GIVEN._replace(process="d", is_blind=True)]) == []
    assert undone([PUSHED, GIVEN]) == ["a"]
    assert undone([PUSHED, GIVEN, step(Did.SETTLING)]) == []
