"""Emptying a queue into an operator's hands, so that not even ``kill -9`` loses an item.

Each item is first *set aside*: in one transaction its znode is deleted and copied below
``<path>-meta/drained``. If the queue has a lock path, that is done under the item's lock, so items
that a consumer works on are left alone. The copy is deleted when its user calls
:meth:`QueueDrain.keep`. All of this goes through an ephemeral writer, which also makes sure that
only one drain runs. On each failure:

* **killed, or session over**: the copies stay. The next drain puts them back under their names, and
  drains them with the others: so two drains may return one item, and none is lost;
* **left early, or on an error**: what was set aside and not kept is put back at once, in its place;
* **answers or connection lost**: waited out, for ``PATIENCE_S``.

A drain takes everything, including items that are not due yet or rest after a failure. It does so
during a pause as well.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from leaderq.base import clock, host
from leaderq.errors import (
    LeaderqError,
    NodeExists,
    NoNode,
    NotEmpty,
    RequestRefused,
    TooLarge,
)
from leaderq.queues.admin.contents import (
    Browsed,
    browse,
    contents_of,
    names_at,
    operators_writer,
    refuse_sharder,
    usual_errors,
)
from leaderq.queues.wire.names import QueueKind, prefix_of
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.zookeeper import Create, Delete, Operation, Session, retrying
from leaderq.zookeeper.paths import join
from leaderq.zookeeper.retrying import retry_until_connected
from leaderq.zookeeper.writing.writer import OVERTAKEN, outcomes

log = logging.getLogger(__name__)

_LOOK_S = 0.5
_LEFT = (NotEmpty, TooLarge)
"""Errors about items that have children, or leave no room in a request for our own operations."""


class QueueDrain:
    """One drain of one queue; a context manager, for one thread. See the module.

    *Guarantees:* an item is either in the queue, or returned by :meth:`batches` and set aside until
    it was passed to :meth:`keep`; items come in the queue's order, and to one drain at a time.

    *Not guaranteed:* that an item is returned only once, if the process is killed or its session
    ends between :meth:`batches` and :meth:`keep`.

    :raises RequestRefused: (on entering) somebody else drains it.
    :raises ConfigurationError: the path is that of a sharder, or the kind cannot be told.
    """

    def __init__(self, session: Session, paths: QueuePaths, kind: QueueKind | None = None) -> None:
        self.kind = kind
        self.left = 0
        """Items not set aside, because they have children or are as large as a request may be."""
        self._session = session
        self._paths = paths
        self._aside = paths.drained
        guard = join(paths.drains, f"{host.name()}:{host.pid()}")
        self._opening = operators_writer(session, paths, guard, ephemeral=True)
        self._kept: list[str] = []
        self._open: dict[str, Browsed] = {}

    def __enter__(self) -> QueueDrain:
        self._writer = self._opening.__enter__()
        try:
            retry_until_connected(partial(self._session.ensure_path, self._aside))
            self._be_alone()
            self._put_back(names_at(self._session, self._aside))
        except BaseException:
            self._opening.__exit__(None, None, None)
            raise
        return self

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            # otherwise these would be set aside after we looked
            self._writer.flush(retrying.PATIENCE_S)
            self.settle()
            self._put_back(list(self._open))
        except LeaderqError as exc:
            if error is None:
                raise
            stays = "what was set aside stays until the next drain path=%s error=%s"
            log.warning(stays, self._aside, exc)
        finally:
            self._opening.__exit__(None, None, None)

    def batches(
        self, limit: int | None = None, *, corrupt_too: bool = True
    ) -> Iterator[list[Browsed]]:
        """Set items aside and yield them in batches, until the queue is empty or ``limit`` items
        were yielded.

        Keep the items of a batch before you ask for the next one; items that were not kept are put
        back. The batches also end when consumers are working on everything that is left. Without
        ``corrupt_too``, unreadable items stay in the queue.
        """
        given = 0
        while given != limit:
            before = given
            for found in self._read():
                wanted = [one for one in found if corrupt_too or one.items is not None]
                while wanted and given != limit:
                    # others may have some of these: then those behind them count instead
                    most = len(wanted) if limit is None else limit - given
                    taken, wanted = self._set_aside(wanted[:most]), wanted[most:]
                    given += len(taken)
                    if taken:
                        yield taken
                    self.settle()
                    self._put_back(list(self._open))
                if given == limit:
                    return
            if given == before:
                return

    def keep(self, one: Browsed) -> None:
        """The user has stored this item safely; its copy is deleted before the next batch."""
        if self._open.pop(one.name, None) is not None:
            self._kept.append(one.name)

    def settle(self) -> None:
        """Delete the copies of items that were kept."""
        self._errors(([Delete(join(self._aside, name))] for name in self._kept), NoNode)
        self._kept.clear()

    def _read(self) -> Iterator[list[Browsed]]:
        path = self._paths.path
        seen = contents_of(names_at(self._session, path), self.kind)
        refuse_sharder(seen, self._paths)
        self.kind = self.kind or seen.kind
        is_framed = seen.kind is not QueueKind.SIMPLE
        return browse(self._session, path, seen.items, framed=is_framed)

    def _set_aside(self, found: Sequence[Browsed]) -> list[Browsed]:
        """Set these items aside; returns the items that this drain got."""
        # an interrupt during the wait must put these back
        self._open = {one.name: one for one in found}
        errors = self._errors(map(self._taking, found), *_LEFT, *OVERTAKEN)
        for one, error in zip(found, errors, strict=True):
            if error is not None:
                del self._open[one.name]
                self.left += isinstance(error, _LEFT)
        return list(self._open.values())

    def _taking(self, one: Browsed) -> Sequence[Operation]:
        copy = Create(join(self._aside, one.name), one.data)
        item = Delete(self._paths.item(one.name), one.version)
        if self._paths.lock_path is None or self.kind is QueueKind.SIMPLE:
            return copy, item
        lock = self._paths.lock(one.name)
        return Create(lock, ephemeral=True), copy, item, Delete(lock)

    def _put_back(self, names: Sequence[str]) -> None:
        """Under their old names; under new ones if the queue was made again."""
        self._open.clear()
        for batch in browse(self._session, self._aside, names, framed=False):
            back = (self._returning(one, one.name) for one in batch)
            errors = self._errors(back, NoNode, NodeExists)
            both = zip(batch, errors, strict=True)
            again = [one for one, error in both if isinstance(error, NodeExists)]
            self._errors((self._returning(one, prefix_of(one.name)) for one in again), NoNode)

    def _returning(self, one: Browsed, name: str) -> Sequence[Operation]:
        item = Create(self._paths.item(name), one.data, sequential=name != one.name)
        return item, Delete(join(self._aside, one.name))

    def _errors(
        self, groups: Iterable[Sequence[Operation]], *usual: type[LeaderqError]
    ) -> list[LeaderqError | None]:
        return usual_errors(outcomes(self._writer, list(groups), self._paths.path), *usual)

    def _be_alone(self) -> None:
        """Wait until no other drain runs. A drain that was killed counts as running until its
        session is over. Two drains that start at the same time see each other and both give up, so
        that neither puts back what the other has set aside.
        """
        own = self._writer.path.rpartition("/")[2]
        deadline = clock.now_s() + self._session.timeout_s + 1
        while True:
            names = names_at(self._session, self._paths.drains)
            others = [name for name in names if name != own]
            if not others:
                return
            if clock.now_s() >= deadline:
                who = others[0].rpartition("-")[0]
                raise RequestRefused(f"{self._paths.path} is being drained by {who}; one at a time")
            clock.sleep(_LOOK_S)
