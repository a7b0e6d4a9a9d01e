"""Requests told apart, and scenarios with each reply in turn lost."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable

from leaderq.testing import FaultProxy, eventually
from leaderq.zookeeper import Session, SessionState

MULTI, PING, SET_WATCHES = 14, 11, 101


def opcode(request: bytes) -> int:
    """What a request asks for; 0 for the greeting of a connection."""
    xid, kind = struct.unpack_from("!ii", request) if len(request) >= 8 else (0, 0)
    return int(kind) if xid > 0 else 0


def is_multi(request: bytes) -> bool:
    return opcode(request) == MULTI


class Nth:
    """A rule that is true of the n-th request (from 0), pings and greetings left out."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._numbers = itertools.count()

    def __call__(self, request: bytes) -> bool:
        return opcode(request) not in (0, PING, SET_WATCHES) and next(self._numbers) == self._wanted


def at_every_point(
    proxy: FaultProxy, scenario: Callable[[int], object], session: Session | None = None
) -> int:
    """Run ``scenario(n)`` with the n-th reply lost, for all n there are; gives their number."""
    for point in itertools.count():
        before = proxy.dropped
        proxy.drop_reply_to(Nth(point))
        scenario(point)
        proxy.heal()
        if session is not None:
            eventually(lambda: session.state is SessionState.CONNECTED)
        if proxy.dropped == before:
            return point
    raise AssertionError
