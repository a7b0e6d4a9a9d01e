"""Breadth-first search over all states of a model, with the shortest trace to each violation."""

from __future__ import annotations

import gc
from array import array
from dataclasses import dataclass
from time import process_time
from typing import Any


class Violated(Exception):
    """A move broke a property; raised by the model while it makes the move."""

    def __init__(self, rule: str, move: str = "") -> None:
        self.rule = rule
        self.move = move
        super().__init__(rule)


@dataclass(frozen=True)
class Found:
    """What a search found. ``trace`` and ``rule`` are empty if nothing was violated."""

    states: int
    depth: int
    seconds: float
    rule: str = ""
    trace: tuple[str, ...] = ()
    last: str = ""

    def told(self, name: str) -> str:
        """One line for the log of a run."""
        outcome = f"trace of {len(self.trace)}: {self.rule}" if self.rule else "nothing violated"
        return f"{name}: {self.states} states, depth {self.depth}, {self.seconds:.1f} s, {outcome}"

    def story(self) -> str:
        """The trace, one move a line, and the state before the last move."""
        lines = [f"{number:3}. {move}" for number, move in enumerate(self.trace, 1)]
        return "\n".join([*lines, f"     VIOLATED: {self.rule}", self.last])


def search(model: Any, most: int = 5_000_000) -> Found:
    """Visit every state of ``model``, or all up to the first violation.

    A model has a ``beginning()``; ``moves(state)`` yields each move's name and the state after it,
    in one order, and raises :class:`Violated` for a move that breaks a property; ``is_led(state)``:
    somebody leads, or the last term was won; ``shown(state)``: in one line, for a trace. A state
    from which nobody can ever lead again is a violation, too. Raises ``RuntimeError`` after
    ``most`` states: the model is not finite, or too large to be of use.
    """
    collecting = gc.isenabled()
    gc.disable()  # nothing here is a cycle, and there are millions of tuples
    try:
        return _search(model, most)
    finally:
        if collecting:
            gc.enable()


def _search(model: Any, most: int) -> Found:
    began_s = process_time()
    first = model.beginning()
    numbers: dict[Any, int] = {first: 0}
    states = [first]
    came_from, depths = array("l", [-1]), array("l", [0])
    edges, ends = array("l"), array("l")

    def found(rule: str, at: int, *move: str) -> Found:
        took_s = process_time() - began_s
        if not rule:
            return Found(len(states), depths[-1], took_s)
        trace = (*_trace(model, states, came_from, at), *move)
        return Found(len(states), depths[-1], took_s, rule, trace, model.shown(states[at]))

    for at, here in enumerate(states):  # which grows
        try:
            for _, there in model.moves(here):
                number = numbers.get(there)
                if number is None:
                    number = numbers[there] = len(states)
                    states.append(there)
                    came_from.append(at)
                    depths.append(depths[at] + 1)
                edges.append(number)
        except Violated as broken:
            return found(broken.rule, at, broken.move)
        ends.append(len(edges))
        if at > most:
            raise RuntimeError(f"more than {most} states")
    stuck = _first_stuck(model, states, edges, ends)
    return found("" if stuck is None else "nobody can ever lead again", stuck or 0)


def _trace(model: Any, states: list[Any], came_from: array[int], at: int) -> tuple[str, ...]:
    """The moves from the beginning to the state numbered ``at``."""
    made = []
    while (before := came_from[at]) >= 0:
        made.append(next(name for name, to in model.moves(states[before]) if to == states[at]))
        at = before
    return tuple(reversed(made))


def _first_stuck(model: Any, states: list[Any], edges: array[int], ends: array[int]) -> int | None:
    """The number of the first state from which no state is reached in which somebody leads."""
    before: list[list[int]] = [[] for _ in states]
    begin = 0
    for number, end in enumerate(ends):
        for to in edges[begin:end]:
            before[to].append(number)
        begin = end
    well = bytearray(len(states))
    waiting = [number for number, state in enumerate(states) if model.is_led(state)]
    for number in waiting:
        well[number] = 1
    while waiting:
        for number in before[waiting.pop()]:
            if not well[number]:
                well[number] = 1
                waiting.append(number)
    return next((number for number, fine in enumerate(well) if not fine), None)
