"""Lives of careers of coroutines: nothing that they have begun acts beside the next leader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from leaderq import AsyncLeaderCareer, AsyncTerm
from leaderq.running.event_loop import EventLoop, Scope
from leaderq.testing.nemesis.history import What
from leaderq.testing.simulation import acted, simulate
from simulation.conftest import SHARE
from simulation.control import NegativeControl, patched
from simulation.elections import ElectionLife, lead
from simulation.kinds import KINDS

_KIND = "rude careers of coroutines"
_CHUNK = int(100 * SHARE)


@pytest.mark.parametrize("chunk", [0, *(pytest.param(n, marks=pytest.mark.long) for n in (1, 2))])
def test_nothing_of_a_loop_acts_beside_the_next_leader(
    chunk: int, lived: Callable[..., None]
) -> None:
    lived(KINDS[_KIND], range(chunk * _CHUNK, (chunk + 1) * _CHUNK))


def test_a_blocked_loop_is_named_and_the_same_seed_gives_the_same_history() -> None:
    for seed in range(50):
        history = lead(ElectionLife(seed, in_coroutines=True)).history
        if any("event loop is blocked" in line for line in history):
            break
    assert any("in blocks_thread" in line for line in history)
    assert sum(What.INAUGURATED.value in line for line in history) > 1
    assert history == lead(ElectionLife(seed, in_coroutines=True)).history


async def _nothing(_scope: Any, _why: str, **_flags: Any) -> None:
    return


def _strangers(_loop: EventLoop, executor: Any, function: Any, *given: Any) -> Any:
    return asyncio.wrap_future((executor or _loop._pool).submit(function, *given))


CONTROLS = [
    ("what a unit or a term leaves behind lives on", patched(Scope, "end", _nothing), 5),
    ("calls in threads are not waited for", patched(EventLoop, "_run_in_executor", _strangers), 1),
]


@pytest.mark.parametrize(("name", "edit", "seed"), CONTROLS, ids=lambda one: str(one)[:40])
def test_a_safety_line_that_is_taken_out_is_missed(name: str, edit: Any, seed: int) -> None:
    life = {"in_coroutines": True, "faults": 8}
    control = NegativeControl(name, edit, seed, lead, ElectionLife, life)
    assert control.search(seed, 1) or control.search(0, 50), "no life shows it"


class Invoices(AsyncLeaderCareer):
    """Sends one invoice at a time."""

    async def execute(self, term: AsyncTerm) -> None:
        await term.wait(0.5)
        async with term.unit():
            term.check()
            acted(f"{term.id}: {asyncio.get_running_loop().time()}")


def test_the_career_of_a_user_is_simulated() -> None:
    report = simulate(Invoices, seeds=5)
    assert report.terms >= 5
    assert report.acts > 50
