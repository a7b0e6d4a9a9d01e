"""Lives of a queue of messages, and the judge shown bad histories."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.conftest import SHARE
from simulation.kinds import KINDS
from simulation.messages import MessageLife, Step, judge, lead, undone

_CHUNK = int(100 * SHARE)


@pytest.mark.parametrize("chunk", range(10))
def test_what_was_pushed_is_acknowledged_once_whoever_dies(
    chunk: int, lived: Callable[..., None]
) -> None:
    lived(KINDS["messages"], range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


def test_without_faults_each_message_is_delivered_as_often_as_it_was_given_back() -> None:
    history = lead(MessageLife(3, faults=0)).history
    counts = {what: sum(f" {what} " in line for line in history) for what in ("pushed", "refused")}
    assert counts["pushed"] == 24
    delivered = sum(" delivered " in line for line in history)
    assert delivered == counts["pushed"] + counts["refused"]


def steps(*what: tuple[str, str]) -> list[Step]:
    return [Step(float(at), one, id, "c") for at, (one, id) in enumerate(what)]


def test_the_judge_sees_what_is_lost_doubled_or_held_by_two() -> None:
    good = steps(("pushed", "a"), ("delivered", "a"), ("acknowledged", "a"))
    assert judge(good) == []
    assert undone(good[:2]) == ["a"]
    assert "nobody has acknowledged" in judge(good[:2])[0]
    assert "acknowledged twice" in judge([*good, good[-1]])[0]
    assert "after it was acknowledged" in judge([*good, good[1]])[0]
    assert "held it" in judge([good[0], good[1]._replace(beside="d"), good[2]])[0]


def test_the_same_seed_gives_the_same_life() -> None:
    assert lead(MessageLife(5)).history == lead(MessageLife(5)).history
