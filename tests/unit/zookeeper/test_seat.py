from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from leaderq.errors import NodeExists, NoNode, SessionClosed, SessionExpired
from leaderq.zookeeper import Check, Delete
from leaderq.zookeeper.seat import Seat, SeatLost, is_fence

PATH = "/line/a"


def seat_of(**session: Any) -> Seat:
    return Seat(SimpleNamespace(**session), PATH, 7)


def test_it_is_held_while_its_own_session_is_proven_and_over_with_another():
    pulse = SimpleNamespace(holds=lambda session: session == 7)
    assert seat_of(pulse=pulse).is_held
    assert not Seat(SimpleNamespace(pulse=pulse), PATH, 8).is_held
    assert [seat_of(id=id).is_over for id in (7, None, 8)] == [False, False, True]


def test_nothing_is_sent_in_another_session():
    with pytest.raises(SeatLost, match=f"seat {PATH} is lost: its session is over") as lost:
        seat_of(id=8).write([])
    assert lost.value.with_session


@pytest.mark.parametrize(
    ("error", "with_session"),
    [(SessionClosed("x"), True), (SessionExpired("x"), True), (NoNode("x", index=0), False)],
)
def test_why_it_is_lost_is_told(error, with_session):
    sent: list[Any] = []

    def multi(operations: Any, timeout_s: float | None) -> Any:
        sent.append((operations, timeout_s))
        raise error

    with pytest.raises(SeatLost) as lost:
        seat_of(id=7, multi=multi).write([Delete("/x")], timeout_s=3.0)
    assert lost.value.with_session is with_session
    assert ("session" in str(lost.value)) is with_session
    assert sent == [([Check(PATH), Delete("/x")], 3.0)]


def test_a_write_returns_what_the_callers_own_operations_return():
    seat = seat_of(id=None, multi=lambda operations, timeout_s: [*operations, timeout_s])
    assert seat.write([Delete("/x")]) == [Delete("/x"), None]


@pytest.mark.parametrize(
    ("error", "index"),
    [(NodeExists("x", index=2), 1), (NoNode("x", index=1), 0), (NodeExists("x"), None)],
)
def test_a_refusal_is_counted_among_the_callers_own_operations(error, index):
    def multi(operations: Any, timeout_s: float | None) -> Any:
        raise error

    with pytest.raises(type(error)) as refused:
        seat_of(id=7, multi=multi).write([Delete("/x")])
    assert (refused.value, error.index) == (error, index)


def test_only_the_first_operations_refusal_is_the_fences():
    assert is_fence(NoNode("x", index=0))
    for other in (NoNode("x", index=1), NoNode("x"), SessionExpired("x"), None):
        assert not is_fence(other)
