"""Queues that are put into, for the tests of putting; and proxies that lose the n-th reply."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable

from leaderq.queues.wire.names import sequence_of
from leaderq.queues.wire.payload import decode
from leaderq.testing import FaultProxy, eventually
from leaderq.zookeeper import GetData, Session, SessionState

PATH = "/q"
MULTI, PING, SET_WATCHES = 14, 11, 101


def opcode(request: bytes) -> int:
    """What a request asks for; 0 for the greeting of a connection."""
    xid, kind = struct.unpack_from("!ii", request) if len(request) >= 8 else (0, 0)
    return int(kind) if xid > 0 else 0


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


def stored(session: Session, path: str = PATH) -> list[bytes]:
    """All items that lie in a queue, in the order of their numbers."""
    names = sorted(session.children(path), key=sequence_of)
    found: list[bytes] = []
    for begin in range(0, len(names), 500):
        reads = [GetData(f"{path}/{name}") for name in names[begin : begin + 500]]
        answers = [
            answer for answer in session.multi_read(reads) if isinstance(answer, tuple)
        ]  # others were taken meanwhile
        found += [item for data, _ in answers for item in decode(data).items]
    return found


def create_all(session: Session, prefix: str, contents: Iterable[bytes]) -> list[str]:
    """Make a sequential znode of each, as another client would; returns their names."""
    made = [session.create_async(prefix, content, sequential=True) for content in contents]
    return [one.result(60).rpartition("/")[2] for one in made]


def numbered(count: int, start: int = 0) -> list[bytes]:
    """So many different items."""
    return [b"%d" % number for number in range(start, start + count)]
