"""Queues that are put into, for the tests of putting."""

from __future__ import annotations

from collections.abc import Iterable

from leaderq.queues.wire.names import sequence_of
from leaderq.queues.wire.payload import decode
from leaderq.zookeeper import GetData, Session

PATH = "/q"


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
