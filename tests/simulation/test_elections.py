"""Thousands of lives of an election, each the same for its seed."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leaderq.testing.nemesis.history import What
from simulation.conftest import SHARE
from simulation.control import NegativeControl
from simulation.controls import CONTROLS
from simulation.elections import ElectionLife, lead
from simulation.kinds import KINDS

_CHUNK = int(100 * SHARE)
_ELECTIONS = [kind for kind in KINDS if kind.startswith("elections")]


@pytest.mark.parametrize("chunk", range(6))
@pytest.mark.parametrize("kind", _ELECTIONS)
def test_nobody_acts_beside_the_next_leader_and_somebody_leads_again(
    kind: str, chunk: int, lived: Callable[..., None]
) -> None:
    lived(KINDS[kind], range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


def test_a_life_has_terms_units_and_faults_to_judge() -> None:
    words = [line.split(" ", 2)[2] for line in lead(ElectionLife(8, faults=8)).history]
    for what in (What.INAUGURATED, What.UNIT, What.EFFECT, What.FAULT, What.HEALED):
        assert any(word.startswith(what.value) for word in words), what


@pytest.mark.parametrize("control", CONTROLS, ids=lambda control: control.name)
def test_a_safety_line_that_is_taken_out_is_missed(control: NegativeControl) -> None:
    """The table of docs/design/simulation.md says how many lives each takes."""
    found = control.search(control.seed, 1) or control.search(0, int(400 * SHARE))
    assert found is not None, f"{control.name}: no life shows it; make simulate may find a seed"


_PROGRAM = """
import sys
from simulation.elections import ElectionLife, lead
for seed in range(6):
    life = ElectionLife(seed, servers=1 + 2 * (seed % 2), polite=seed % 3 == 0)
    print("\\n".join(lead(life).history))
"""


def _history(**environment: str) -> bytes:
    tests = str(Path(__file__).parents[1])
    path = os.pathsep.join([str(Path(tests).parent), tests])
    program = [sys.executable, "-c", _PROGRAM]
    given: dict[str, Any] = {**os.environ, "PYTHONPATH": path, **environment}
    return subprocess.run(program, env=given, capture_output=True, check=True).stdout


def test_the_same_seed_gives_the_same_history_byte_for_byte_with_any_hash_seed() -> None:
    first, second = _history(PYTHONHASHSEED="1"), _history(PYTHONHASHSEED="4711")
    assert hashlib.sha256(first).hexdigest() == hashlib.sha256(second).hexdigest()
    assert first.count(b"inaugurated") >= 6
