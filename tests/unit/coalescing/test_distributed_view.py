"""What the slots of a key say; checked against every order in which others may come and go while they are read."""

from __future__ import annotations

import itertools

import pytest

from leaderq.coalescing.automaton import TrafficState
from leaderq.coalescing.distributed.view import Holder, KeyView, Standing, holder, judge, view
from leaderq.errors import ConnectionLost, NoNode
from leaderq.zookeeper import Stat


def at(slot: int, token: str, number: int) -> Holder:
    return Holder(slot, token, number, 1)


def read(token: str, number: int) -> tuple[bytes, Stat]:
    return token.encode(), Stat(number, number, 0, 0, 0, 0, 0, 7, 0, 0, number)


A, B = at(0, "a", 1), at(1, "b", 2)


@pytest.mark.parametrize(
    ("slots", "expected"),
    [
        ((None, None, None), (Standing.OUTSIDE, 0)),
        ((A, None, A), (Standing.OUTSIDE, 1)),
        ((None, B, None), (Standing.OUTSIDE, 0)),
        ((A, B, A), (Standing.DECLINED, 0)),
        ((A, B, None), (Standing.OUTSIDE, 0)),
        ((None, B, A), (Standing.UNCLEAR, 0)),
        ((A, B, at(0, "c", 3)), (Standing.UNCLEAR, 0)),
        ((at(0, "me", 1), None, at(0, "me", 1)), (Standing.HEAD, 0)),
        ((at(0, "me", 1), B, at(0, "me", 1)), (Standing.HEAD, 0)),
        ((at(0, "me", 3), B, at(0, "me", 3)), (Standing.WAITS, 0)),
        ((A, at(1, "me", 2), A), (Standing.WAITS, 1)),
        ((A, at(1, "me", 2), None), (Standing.HEAD, 1)),
        ((A, at(1, "me", 2), at(0, "c", 3)), (Standing.HEAD, 1)),
    ],
)
def test_where_somebody_stands(slots, expected):
    assert judge("me", *slots) == expected


def test_the_older_slot_is_the_heads():
    assert view([A, B]) == view([B, A]) == KeyView(A, B)
    assert view([None, None]).state is TrafficState.INIT
    assert view([None, B]) == KeyView(B, None)
    assert view([None, B]).state is TrafficState.PROCESS
    assert view([A, B]).state is TrafficState.BLOCK


def test_a_slot_is_read_from_what_zookeeper_gave():
    assert holder(1, read("b", 5)) == Holder(1, "b", 5, 7)
    assert holder(1, NoNode("x")) is None
    with pytest.raises(ConnectionLost):
        holder(1, ConnectionLost("x"))


def histories():
    """All short histories of two slots, in which others take and leave them."""
    for steps in itertools.product(("take 0", "take 1", "leave 0", "leave 1"), repeat=4):
        slots: list[Holder | None] = [None, None]
        states = [tuple(slots)]
        for number, step in enumerate(steps, 1):
            what, _, slot = step.partition(" ")
            if what == "take" and slots[int(slot)] is None:
                slots[int(slot)] = at(int(slot), f"t{number}", number)
            elif what == "leave":
                slots[int(slot)] = None
            states.append(tuple(slots))
        yield states


def test_nobody_is_declined_unless_somebody_waits_at_some_moment_of_the_looking():
    seen = 0
    for states in histories():
        for first, second, again in itertools.combinations_with_replacement(range(len(states)), 3):
            standing, _ = judge("me", states[first][0], states[second][1], states[again][0])
            if standing is Standing.DECLINED:
                seen += 1
                assert any(None not in state for state in states[first : again + 1])
    assert seen
