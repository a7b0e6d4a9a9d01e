"""When leases that are kept are extended, and when their end is told, in simulated time."""

from __future__ import annotations

import asyncio
import math
from typing import Any
from unittest.mock import Mock

import pytest
from simulation.scenarios import Scene, scene
from simulation.test_dyno_defects import Side, is_about_claims, sides

from leaderq.dyno import Message, StaleLease
from leaderq.engine.async_face import AsyncTaken

LEASE_S = 30.0


class Kept:
    """A delivery whose lease is kept from now on. Of what follows, seconds from then on."""

    def __init__(self, s: Scene, most_s: float | None, ending_s: float) -> None:
        (side,) = sides(s, "a", lease_s=LEASE_S)
        self.side: Side = side
        side.push(Message())
        (self.one,) = side.pop(1, 5.0)
        self.extended: list[Any] = []
        self.told: list[float] = []
        s.rules.append((side.who.process.host, self._note))
        self._now_s, self._began_s = lambda: s.now_s, s.now_s
        side.keep([self.one], most_s=most_s, ending=self._tell, ending_s=ending_s)

    def _tell(self, one: Any) -> None:
        assert one is self.one
        self.told.append(self._now_s() - self._began_s)

    def _note(self, request: Any) -> None:
        if is_about_claims(request):
            self.extended.append(request)


@pytest.mark.parametrize("ending_s", [5.0, 15.0, 40.0])
@pytest.mark.parametrize("most_s", [0.0, 30.0, 61.0, 75.0, 100.0])
@scene(1)
def test_the_end_is_told_once_so_long_before_it(s, most_s, ending_s):
    kept = Kept(s, most_s, ending_s)
    s.run(120.0)
    ends_s = max(LEASE_S, most_s)
    assert kept.side.who.do(lambda: kept.one.left_s) == pytest.approx(ends_s - 120.0, abs=0.1)
    assert kept.told == [pytest.approx(max(0.0, ends_s - ending_s), abs=0.1)]
    assert len(kept.extended) <= math.ceil(most_s / (LEASE_S * 2 / 3))


@scene(1)
def test_what_is_kept_for_ever_is_extended_and_its_end_is_never_told(s):
    kept = Kept(s, None, 5.0)
    s.run(3600.0)
    assert len(kept.extended) == pytest.approx(3600 / (LEASE_S * 2 / 3), abs=1)
    assert kept.told == []


@scene(1)
def test_the_end_of_what_is_let_go_is_not_told(s):
    kept = Kept(s, 100.0, 5.0)
    s.run(50.0)
    kept.side.let_go([kept.one])
    s.run(100.0)
    assert kept.told == []


@scene(1)
def test_what_was_settled_while_it_was_passed_to_keep_is_forgotten_and_not_called_lost(s, caplog):
    kept = Kept(s, None, 5.0)
    how = kept.side.queue._hand.held[kept.one]
    kept.side.who.do(kept.one.ack)
    kept.side.queue._hand.held[kept.one] = how  # by a keep() that had seen it unsettled
    s.run(100.0)
    assert kept.one not in kept.side.queue._hand.held
    assert "lease lost" not in caplog.text


class Lost:
    is_settled = True

    def __exit__(self, *_: object) -> None:
        raise StaleLease("it was lost meanwhile")


def test_a_block_of_asyncio_is_told_too_that_its_message_was_lost() -> None:
    async def work() -> None:
        async with AsyncTaken(Lost(), Mock(side_effect=AssertionError)):
            await asyncio.sleep(0)

    with pytest.raises(StaleLease):
        asyncio.run(work())
