"""Negative controls of distributed coalescing: edits of the program that its lives must notice."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from leaderq.coalescing.distributed import request, slots
from leaderq.coalescing.distributed.coordinator import Coverage, DistributedQueueCoordinator
from leaderq.coalescing.distributed.request import Release, SlotReleases, SlotRequest
from leaderq.coalescing.distributed.slots import DistributedToken, SlotStanding
from leaderq.testing.nemesis.history import Kind
from leaderq.zookeeper.proof import Shares
from leaderq.zookeeper.pulse import Pulse
from simulation.coalescing import CoalescingLife, lead
from simulation.control import NegativeControl, around, patched, together

_FROZEN = {"kinds": (Kind.FREEZE_WORKER, Kind.BLACK_HOLE), "faults": 10}
_of = partial(NegativeControl, lead=lead, make=CoalescingLife)


def _holds(self: Pulse, session: int | None) -> bool:
    return session is not None and self._session() == session


def _for_two(self: Shares) -> float:
    return 2 * self.timeout_s


def _write(self: DistributedToken, operations: Sequence[Any], **more: Any) -> Any:
    assert self._seat is not None
    return self._seat.session.multi(list(operations), **more)


def _forgotten(self: SlotReleases, release: Release, _: int, answer: Any) -> None:
    release.settle(answer.exception() is None)


def _owing_nothing(self: Coverage, token: str, *, is_gone: bool) -> None:
    self._watched.pop(token, None)


def _first_slot_first(token: str, first: Any, second: Any, again: Any) -> Any:
    found, slot = slots.judge(token, first, second, again)
    is_mine = found in (SlotStanding.HEAD, SlotStanding.WAITS)
    return (SlotStanding.HEAD if slot == 0 else found, slot) if is_mine else (found, slot)


@around(SlotRequest, "_try")
def _asks_anew(real: Any, self: SlotRequest, slot: int) -> Any:
    made, read = real(self, slot)
    if read is None:
        self._token = self._znodes.new_token()
    return made, read


@around(DistributedQueueCoordinator, "_admitted")
def _waits_on(real: Any, self: DistributedQueueCoordinator, asked: SlotRequest, znodes: Any) -> Any:
    token = real(self, asked, znodes)
    if token.outcome.name == "BLOCK":
        self._waiting[znodes.name] = asked
    return token


@around(DistributedQueueCoordinator, "_release")
def _until_released(real: Any, self: DistributedQueueCoordinator, token: Any, ending: Any) -> Any:
    self._waiting.pop(token.znodes.name, None)
    return real(self, token, ending)


@around(SlotReleases, "_answered")
def _always_true(
    real: Any, self: SlotReleases, release: Release, connection: int, answer: Any
) -> None:
    release.settle(True)
    real(self, release, connection, answer)


COALESCING_CONTROLS = (
    _of("a token does not look at the clock", patched(Pulse, "holds", _holds), 11, life=_FROZEN),
    _of("F7: a token's lease lasts for 2T", patched(Shares, "trusted_s", property(_for_two)), 140),
    _of("a token's write is not fenced", patched(DistributedToken, "write", _write), 113),
    _of("a lost release is not repeated", patched(SlotReleases, "_answered", _forgotten), 0),
    _of("a request whose answer was lost asks as another", _asks_anew, 18),
    _of("nobody covers who was declined", patched(Coverage, "rely_on", lambda *_: None), 18),
    _of("a dead waiter owes nothing", patched(Coverage, "_tell", _owing_nothing), 31),
    _of("one that has begun is taken for one that waits", together(_waits_on, _until_released), 25),
    _of("whoever has slot 0 is the head", patched(request, "judge", _first_slot_first), 0),
    _of("a release says that the token stood", _always_true, 142),
)
