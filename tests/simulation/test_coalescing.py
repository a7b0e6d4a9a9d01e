"""Distributed coalescing: what its lives are made of, and the judge shown bad histories."""

from __future__ import annotations

import pytest

from simulation.coalescing import CoalescingLife, Turn, TurnLine, judge, lead


def test_a_life_has_heads_waiters_declined_requests_and_faults_to_judge():
    history = "\n".join(line for seed in range(6) for line in lead(CoalescingLife(seed)).history)
    for what in (Turn.BEGUN, Turn.BELIEVED, Turn.STOOD, Turn.DECLINED):
        assert f" {what.value} key" in history, what


def _lines(*told: tuple[Turn, str, int]) -> list[TurnLine]:
    """What, who, and the token's number, or a request's if it is not about a token."""
    return [
        TurnLine(float(at), what, who, "k", number, number)
        for at, (what, who, number) in enumerate(told)
    ]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("believed to c", [(Turn.BELIEVED, "d", 2), (Turn.BELIEVED, "c", 1)]),
        ("stood", [(Turn.BELIEVED, "d", 2), (Turn.RELEASED, "c", 1), (Turn.STOOD, "c", 1)]),
        ("was written after", [(Turn.WRITTEN, "", 2), (Turn.WRITTEN, "", 1)]),
        ("is left", [(Turn.LEFT, "", 0)]),
        ("never covered", [(Turn.BEGUN, "d", 1), (Turn.ASKED, "c", 7), (Turn.DECLINED, "c", 7)]),
    ],
)
def test_the_judge_of_coalescing_sees(said, told):
    problems = judge(_lines(*told))
    assert len(problems) == 1, problems
    assert said in problems[0]


@pytest.mark.parametrize(
    "told",
    [
        [(Turn.BELIEVED, "c", 1), (Turn.BELIEVED, "d", 2), (Turn.WRITTEN, "", 1)],
        [(Turn.RELEASED, "c", 1), (Turn.BELIEVED, "d", 2), (Turn.STOOD, "c", 1)],
        [(Turn.ASKED, "c", 7), (Turn.DECLINED, "c", 7), (Turn.BEGUN, "d", 1)],
        [(Turn.ASKED, "c", 7), (Turn.DECLINED, "c", 7), (Turn.DIED, "c", 0)],
    ],
)
def test_the_judge_of_coalescing_lets_pass(told):
    assert judge(_lines(*told)) == []
