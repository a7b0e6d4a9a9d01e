"""Reads many items of a queue at a time, but never more than about a megabyte in one request,
because a server builds the whole answer in its memory.

First it asks for sizes, in requests that carry no data: for the size of every item while sizes are
unknown or one was large of late, else for that of the last and of every 16th item, beginning at a
random place. Then it reads only as many items as fit by these sizes. It begins with 16 items, and
reads four times as many with each read of small ones.

*Guarantees:* a run of 16 large items or more, and a large item at the end, is seen before it is
read. *Not guaranteed:* that a few large items among small ones are seen before they are read; but
the first of them makes the next reads careful. An item that is gone counts as size 0, and the read
has its error; a lost connection fails the read.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from typing import Any

from leaderq.base import chance
from leaderq.errors import ConnectionLost, LeaderqError, NoNode
from leaderq.threads import primitives
from leaderq.zookeeper import GetData, Session, Stat

READ_BYTES = 1 << 20
"""Bytes that one read asks for, unless one item is larger."""
_SMALL_BYTES = 16 * 1024
_FIRST, _MOST, _EVERY = 16, 250, 16
_META_BYTES = 80  # of each item in an answer
_ANSWER_S = 10.0


_Steps = Generator[primitives.Future[Any], Any, list[Any]]


class ReadSizes:
    """The known sizes of a queue's items, and how many items may be read next (pure).

    Not synchronised: what one thread learns while another thread asks counts for its next read.
    """

    def __init__(self) -> None:
        self._typical = READ_BYTES / _FIRST - _META_BYTES

    @property
    def most(self) -> int:
        """How many items to ask for at a time."""
        return max(1, min(_MOST, int(READ_BYTES / (self._typical + _META_BYTES))))

    @property
    def is_careful(self) -> bool:
        """Whether the sizes of all items must be asked for before the items are read: no sizes are
        known yet, or a recent item was large.
        """
        return self._typical > _SMALL_BYTES

    def to_measure(self, count: int) -> list[int]:
        """The positions among ``count`` items whose sizes must be known before they are read."""
        if count == 1:
            return []
        if self.is_careful:
            return list(range(count))
        sampled = range(chance.randrange(_EVERY), count - 1, _EVERY)
        return [*sampled, count - 1]

    def is_unsure(self, sizes: Sequence[int]) -> bool:
        """Whether these samples have a large item, so that the size of each item must be
        asked for.
        """
        return max(sizes, default=0) > _SMALL_BYTES

    def fitting(self, count: int, sizes: Sequence[int]) -> int:
        """How many of ``count`` items to read at once; ``sizes`` are the sizes of all of them, or
        samples.
        """
        if len(sizes) < count:
            largest = max([self._typical, *sizes]) + _META_BYTES
            return max(1, min(count, int(READ_BYTES / largest)))
        total = 0
        for position, size in enumerate(sizes):
            total += size + _META_BYTES
            if total > READ_BYTES and position:
                return position
        return count

    def learned(self, sizes: Sequence[int]) -> None:
        if sizes:
            self._typical = max(*sizes, self._typical / 4)


class SizedReader:
    """Reads children of one znode by their names; see the module. Any thread may use it."""

    def __init__(self, session: Session, path: str) -> None:
        self._session = session
        self._path = path
        self.sizes = ReadSizes()

    @property
    def most(self) -> int:
        """How many names to ask for at a time; of a longer list, only the first are read."""
        return self.sizes.most

    def read(self, names: Sequence[str]) -> primitives.Future[list[Any]]:
        """Read as many of the first ``names`` as fit; return for each
        ``(data, ctime_ms, version)``, or its error in its place.
        """
        return _answered(self._steps(names[: self.most]))

    def read_few(self, names: Sequence[str]) -> primitives.Future[list[Any]]:
        """Read as :meth:`read` does, but at once, without asking for sizes: for names that may not
        exist. Reads only the first one unless sizes are known and small.
        """
        return _answered(self._reading(names[: 1 if self.sizes.is_careful else self.most]))

    def read_now(self, names: Sequence[str]) -> list[Any]:
        """Read as :meth:`read` does, and wait for the answer.

        :raises ConnectionLost: there is no connection, or no answer within 10 seconds.
        """
        answer = self.read(names)
        try:
            return answer.result(_ANSWER_S)
        except primitives.FutureTimeout:
            answer.cancel()
            raise ConnectionLost(f"items were not read in time path={self._path}") from None

    def read_all(self, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """Yields each of ``names`` with its result of :meth:`read`, in order; reads as many at a
        time as fit.

        :raises ConnectionLost: as :meth:`read_now`.
        """
        at = 0
        while at < len(names):
            batch = names[at : at + self.most]
            answers = self.read_now(batch)
            at += len(answers)
            yield from zip(batch, answers, strict=False)

    def _steps(self, names: Sequence[str]) -> _Steps:
        sizes: list[int] = []
        if positions := self.sizes.to_measure(len(names)):
            asked = [names[at] for at in positions]
            sizes = yield self._session.child_sizes_async(self._path, asked)
            if len(sizes) < len(names) and self.sizes.is_unsure(sizes):
                sizes = yield self._session.child_sizes_async(self._path, names)
            names = names[: self.sizes.fitting(len(names), sizes)]
        return (yield from self._reading(names))

    def _reading(self, names: Sequence[str]) -> _Steps:
        rows: list[Any] = yield self._session.child_data_async(self._path, names)
        self.sizes.learned([len(row[0]) for row in rows if isinstance(row, tuple)])
        return rows


def children_of(session: Session, path: str, timeout_s: float | None = None) -> list[str]:
    """The names of the children of ``path``; none if the znode does not exist."""
    try:
        return session.children(path, timeout_s=timeout_s)
    except NoNode:
        return []


def existing(session: Session, paths: Sequence[str]) -> dict[str, tuple[bytes, Stat]]:
    """The data and metadata of those ``paths`` that exist, read in one request. Raises any error
    except ``NoNode``.
    """
    found = {}
    for path, answer in zip(paths, session.multi_read(list(map(GetData, paths))), strict=True):
        if isinstance(answer, tuple):
            found[path] = answer
        elif isinstance(answer, LeaderqError) and not isinstance(answer, NoNode):
            raise answer
    return found


def _answered(steps: _Steps) -> primitives.Future[list[Any]]:
    """The future of what ``steps`` return. They continue on threads of the session, each when what
    they have asked for is answered.
    """
    answer: primitives.Future[list[Any]] = primitives.Future()

    def go_on(done: primitives.Future[Any] | None) -> None:
        with suppress(primitives.InvalidStateError):  # nobody waits for it any more
            try:
                asked = steps.send(None if done is None else done.result())
            except StopIteration as end:
                answer.set_result(end.value)
            except BaseException as exc:  # noqa: BLE001 - told to whoever waits
                answer.set_exception(exc)
            else:
                asked.add_done_callback(go_on)

    go_on(None)
    return answer
