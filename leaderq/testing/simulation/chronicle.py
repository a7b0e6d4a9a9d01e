"""Writes down what happens in a life, and checks what must not happen.

The history has the nemesis's words, and the nemesis's checkers judge it: what must not be in a
history of real processes must not be in a simulated one.
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
    """The result of a life: ``problems`` are sentences, and there must be none."""

    life: Any
    problems: list[str]
    world: World = field(repr=False)
    terms: int = 0

    @property
    def history(self) -> list[str]:
        """What happened, a line each."""
        return list(self.world.lines())

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


def judge(
    lines: Sequence[Line], timeout_s: float, tick_s: float, *, fenced_only: bool = False
) -> list[str]:
    """Return sentences about all that is wrong in this history; T is ``timeout_s``.

    Servers end a session up to a tick after T. So somebody leads up to a tick later than is
    promised for ticks that are small compared with T. With ``fenced_only``, only fenced writes are
    judged.
    """
    bounds = Bounds(timeout_s)
    problems = register_never_falls_back(lines, bounds)
    if not fenced_only:
        problems += nothing_after_its_term(lines, bounds)
    return problems + led_again(lines, Bounds(timeout_s + tick_s))


def failures(world: World) -> list[str]:
    """Return the faults that no life may have, whatever it is about: code of ours that raised where
    nobody catches it.
    """
    return [
        f"{process}: {what} {facts}"
        for _, process, what, facts in world.history
        if what in ("task failed", "callback failed", "career failed")
    ]
