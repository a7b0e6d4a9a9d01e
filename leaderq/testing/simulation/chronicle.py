"""What is written down of a life, and what must not stand there.

The history is in the words of the nemesis, and judged by the judges of the nemesis: what must not
be in a history of real processes must not be in a simulated one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from leaderq.testing.nemesis.checkers import (
    Bounds,
    led_again,
    nothing_after_its_term,
    register_never_falls_back,
)
from leaderq.testing.nemesis.history import Line, What
from leaderq.testing.simulation.scheduler import World


@dataclass(frozen=True, slots=True)
class LifeVerdict:
    """What came of a life: ``problems`` are sentences, and there must be none."""

    life: Any
    problems: list[str]
    history: list[str] = field(repr=False)
    terms: int = 0
    steps: int = 0

    @property
    def seed(self) -> int | str:
        seed: int | str = self.life.seed
        return seed


class Chronicle:
    """The lines of one life, for the judges and for the history."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lines: list[Line] = []

    def note(self, what: What, *, who: str = "", **values: Any) -> None:
        task = self._world.current
        if self._world.over or (task is not None and not task.process.alive):
            return
        self.lines.append(Line(self._world.now_s, what, who, **values))
        told = {name: getattr(value, "value", value) for name, value in values.items()}
        self._world.note(what.value, process=who or None, **told)


def judge(lines: Sequence[Line], timeout_s: float, tick_s: float) -> list[str]:
    """All that is wrong with this history; T is ``timeout_s``.

    Servers end a session up to a tick after T, so somebody leads up to a tick later than promised
    for ticks that are small beside T.
    """
    bounds = Bounds(timeout_s)
    judges = (register_never_falls_back, nothing_after_its_term)
    problems = [problem for one in judges for problem in one(lines, bounds)]
    return problems + led_again(lines, Bounds(timeout_s + tick_s))


def failures(world: World) -> list[str]:
    """What no life may hold, whatever it is about: code of ours that raised where nobody hears."""
    return [
        f"{process}: {what} {facts}"
        for _, process, what, facts in world.history
        if what in ("task failed", "callback failed", "career failed")
    ]
