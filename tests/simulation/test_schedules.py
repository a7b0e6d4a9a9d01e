"""Lives of schedules: every tick has one record, none is done twice, each gap is explained."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.conftest import SHARE
from simulation.control import NegativeControl
from simulation.kinds import KINDS
from simulation.schedule_controls import CONTROLS
from simulation.schedules import ScheduleLife, lead

_CHUNK = int(50 * SHARE)


@pytest.mark.parametrize("chunk", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.startswith("schedules")])
def test_every_tick_has_one_record_and_the_witness_agrees(
    kind: str, chunk: int, lived: Callable[..., None]
) -> None:
    lived(KINDS[kind], range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


def test_a_life_has_ticks_attempts_and_errors_to_judge() -> None:
    history = "\n".join(lead(ScheduleLife(1)).history)
    for what in ("work tick=fast", "work tick=slow", "attempt=2", "as the life wants", "fault"):
        assert what in history, what


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_a_safety_line_of_schedules_that_is_taken_out_is_missed(control: NegativeControl) -> None:
    """The list of docs/design/simulation.md says how many lives each takes."""
    found = control.search(control.seed, 1) or control.search(0, int(200 * SHARE))
    assert found is not None, f"{control.name}: no life shows it"
