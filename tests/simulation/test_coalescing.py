"""Lives of distributed coalescing, and the judge shown bad histories."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.coalescing import CoalescingLife, Turn, TurnLine, judge, lead
from simulation.coalescing_controls import COALESCING_CONTROLS
from simulation.conftest import SHARE
from simulation.control import NegativeControl
from simulation.kinds import KINDS

_CHUNK = int(100 * SHARE)


@pytest.mark.parametrize("chunk", range(2))
def test_one_works_one_waits_and_whoever_is_declined_is_covered(
    chunk: int, lived: Callable[..., None]
) -> None:
    """Seeds 0 to 39: without a connection, whoever covered asked without a pause."""
    lived(KINDS["coalescing"], range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


@pytest.mark.parametrize("control", COALESCING_CONTROLS, ids=lambda control: control.name)
def test_a_line_of_coalescing_that_is_taken_out_is_missed(control: NegativeControl) -> None:
    assert not control.problems(control.seed)
    found = control.search(control.seed, 1) or control.search(0, int(300 * SHARE))
    assert found is not None, f"{control.name}: no life shows it"


def test_a_life_has_heads_waiters_declined_requests_and_faults_to_judge() -> None:
    history = "\n".join(line for seed in range(6) for line in lead(CoalescingLife(seed)).history)
    for what in (Turn.BEGUN, Turn.BELIEVED, Turn.STOOD, Turn.DECLINED, Turn.EVICTED):
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
def test_the_judge_of_coalescing_sees(said: str, told: list[tuple[Turn, str, int]]) -> None:
    problems = judge(_lines(*told))
    assert len(problems) == 1, problems
    assert said in problems[0]


@pytest.mark.parametrize(
    "told",
    [
        [(Turn.BELIEVED, "c", 1), (Turn.BELIEVED, "d", 2), (Turn.WRITTEN, "", 1)],
        [(Turn.EVICTED, "d", 1), (Turn.BELIEVED, "d", 2), (Turn.BELIEVED, "c", 1)],
        [(Turn.RELEASED, "c", 1), (Turn.BELIEVED, "d", 2), (Turn.STOOD, "c", 1)],
        [(Turn.ASKED, "c", 7), (Turn.DECLINED, "c", 7), (Turn.BEGUN, "d", 1)],
        [(Turn.ASKED, "c", 7), (Turn.DECLINED, "c", 7), (Turn.DIED, "c", 0)],
    ],
)
def test_the_judge_of_coalescing_lets_pass(told: list[tuple[Turn, str, int]]) -> None:
    assert judge(_lines(*told)) == []
