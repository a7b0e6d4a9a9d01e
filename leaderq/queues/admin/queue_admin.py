"""One queue in an operator's hands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice

from leaderq.errors import RequestRefused
from leaderq.queues import pausing
from leaderq.queues.admin.browsing import Browsed, browse
from leaderq.queues.admin.bulk import Purged, delete_if_empty, delete_tree, purge
from leaderq.queues.admin.contents import (
    Overview,
    QueueContents,
    is_there,
    look,
    names_at,
    overview,
    refuse_sharder,
    sequence_after,
)
from leaderq.queues.admin.dead_letters import DeadLetters
from leaderq.queues.admin.draining import QueueDrain
from leaderq.queues.wire.names import QueueKind
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.retrying import PATIENCE_S, retry_until_connected
from leaderq.zookeeper import Session, Stat
from leaderq.zookeeper.paths import parent_of


class QueueAdmin:
    """See the package. Without ``kind`` the names of the items tell it, each time again. May be
    used from any thread.

    *Guarantees:* looking changes nothing; no call waits for longer than ``patience_s`` without an
    answer. *Not guaranteed:* that a queue in use is still as it was seen.
    """

    def __init__(
        self, session: Session, paths: QueuePaths, kind: QueueKind | None = None, *, patience_s: float = PATIENCE_S
    ) -> None:
        self.paths = paths
        self.dead_letters = DeadLetters(session, paths, patience_s=patience_s)
        self._session = session
        self._kind = kind
        self._patience_s = patience_s

    def depth(self) -> int:
        """How many children the queue has, without listing them: items, those being worked on
        included, and foreign ones if any. 0 if the path is not there.
        """
        stat = self._stat()
        return stat.num_children if stat else 0

    def next_sequence(self) -> int:
        """The number that the next item will get; it ends at 2^31 - 1. 0 if the path is
        not there.
        """
        stat = self._stat()
        return sequence_after(stat) if stat else 0

    def is_there(self) -> bool:
        """Whether there is a znode at its path, or side data of it."""
        return is_there(self._session, self.paths, patience_s=self._patience_s)

    def overview(self) -> Overview | None:
        """All about it; ``None`` if there is nothing at its path nor beside it."""
        return overview(self._session, self.paths, self._kind, patience_s=self._patience_s)

    def detect(self) -> QueueContents:
        """List the children, and tell kind, items and foreign ones.

        :raises ConfigurationError: the names are those of several kinds, and none was told.
        """
        return look(self._session, self.paths.path, self._kind, self._patience_s)

    def names(self) -> list[str]:
        """The names of all children, in no order; none if the path is not there."""
        return names_at(self._session, self.paths.path, self._patience_s)

    def browse(self, limit: int | None = None, *, seen: QueueContents | None = None) -> Iterator[Browsed]:
        """The items that lie there now, in the order in which they go, ``limit`` of them at most;
        nothing is taken.

        ``seen``: what :meth:`detect` gave, so as not to list again. Items that vanish before they
        are read are left out. Memory: the names of all, the data of a batch.

        :raises ConfigurationError: as :meth:`detect`; or the path is that of a sharder, whose
            queues are below it.
        """
        return islice(self._each(self._own(seen)), limit)

    def purge(self, *, held_too: bool = False, on_progress: Callable[[int], None] | None = None) -> Purged:
        """Delete the items that lie there now; with a lock path those being worked on stay, unless
        ``held_too``.

        Foreign children stay. What is put meanwhile stays. Interrupted, it is begun again.
        ``on_progress`` is told how many more have been dealt with.

        :raises ConfigurationError: as :meth:`browse`.
        """
        seen = self._own()
        paths = replace(self.paths, lock_path=None) if seen.kind is QueueKind.SIMPLE else self.paths
        return purge(
            self._session, paths, seen.items, held_too=held_too, on_progress=on_progress, patience_s=self._patience_s
        )

    def delete(self, *, force: bool = False) -> int:
        """Delete the queue with everything beside it: side data, dead letters, empty locks; returns how
        many znodes that were. A path that is gone already is not an error.

        :raises RequestRefused: it holds items or dead letters, or consumers are there; with ``force``
            these go as well, items that are being worked on too.
        :raises ConfigurationError: the path is that of a sharder, whose queues are below it.
        """
        seen = self._own()
        if not force:
            self._refuse_loss(seen)
        wanted = [self.paths.path, self.paths.meta, self.paths.dead]
        if self.paths.lock_path is not None:
            wanted.append(self.paths.lock_path)
        deleted = sum(delete_tree(self._session, path, patience_s=self._patience_s) for path in wanted)
        side = parent_of(self.paths.meta)
        if self.paths.meta_path is None and side != parent_of(self.paths.path):
            # Of a shard: the place of all shards' side data goes with the last.
            deleted += delete_if_empty(self._session, side, self._patience_s)
        return deleted

    def _refuse_loss(self, seen: QueueContents) -> None:
        now = self.overview()
        counts = {
            "items": len(seen.items),
            "foreign znodes": len(seen.foreign),
            "dead letters": now.dead if now else 0,
            "items set aside by a drain": now.aside if now else 0,
            "consumers": now.consumers if now else 0,
        }
        held = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        if held:
            raise RequestRefused(f"{self.paths.path} is in use: {held}; purge it first, or force its deletion")

    def drain(self) -> QueueDrain:
        """Empty it with care; see :class:`~leaderq.queues.admin.draining.QueueDrain`."""
        return QueueDrain(self._session, self.paths, self._kind, patience_s=self._patience_s)

    def pause(self) -> bool:
        """Ask all consumers of leaderq, those to come too, to begin no new item; whether that is
        news.
        """
        return pausing.set_paused(self._session, self.paths, True, patience_s=self._patience_s)

    def resume(self) -> bool:
        """End a pause; whether there was one."""
        return pausing.set_paused(self._session, self.paths, False, patience_s=self._patience_s)

    def is_paused(self) -> bool:
        """Whether consumers are asked to pause."""
        return pausing.is_paused(self._session, self.paths, patience_s=self._patience_s)

    def _stat(self) -> Stat | None:
        return retry_until_connected(self._session, lambda: self._session.exists(self.paths.path), self._patience_s)

    def _own(self, seen: QueueContents | None = None) -> QueueContents:
        seen = seen or self.detect()
        refuse_sharder(seen, self.paths)
        return seen

    def _each(self, seen: QueueContents) -> Iterator[Browsed]:
        is_framed = seen.kind is not QueueKind.SIMPLE
        batches = browse(
            self._session,
            self.paths.path,
            seen.items,
            framed=is_framed,
            lock_path=self.paths.lock_path if is_framed else None,
            patience_s=self._patience_s,
        )
        return (one for batch in batches for one in batch)
