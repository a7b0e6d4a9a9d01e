"""Counts the consumers that died over an item, for queues with a lock path.

Each consumer has a persistent record, ``<path>-meta/claims/<member>``, which every claim
overwrites, in its own multi, with the names it holds then. A record without a member is a death:
over the name it holds or, if it holds several, nobody knows over which. An item that was held at
two deaths is a *suspect*: it is claimed alone until it is settled, so that the next death tells;
then the deaths before it count as well.

What happens on each failure: **a record cannot be read or deleted**: it is looked at again when a
member comes or goes; **a record is taken away by hand**: those deaths are not counted; **a session
ends and its process lives on**: it takes its record away itself, and no death is counted.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable

from leaderq.errors import ConnectionLost, LeaderqError, NodeExists, NoNode
from leaderq.queues.wire.znodes import QueuePaths
from leaderq.reading import children_of
from leaderq.zookeeper import GetData, Operation, Session, SetData
from leaderq.zookeeper.paths import join, name_of

log = logging.getLogger(__name__)


class DeathRecords:
    """Used by the engine's thread; the answers to questions are as of the last :meth:`refresh`."""

    def __init__(self, session: Session, paths: QueuePaths) -> None:
        self._session = session
        self._paths = paths
        self._own: str | None = None
        self._listed: list[str] = []
        self._left: dict[str, set[str]] = {}  # record of a dead consumer: the names it held
        self._resolved: dict[str, set[str]] = {}

    def open(self, member: str) -> None:
        path = join(self._paths.claims, name_of(member))
        self._session.ensure_path(self._paths.claims)
        try:
            self._session.create(path)
        except NodeExists:
            log.debug("exists already path=%s", path)
        self._own = path

    def close(self) -> None:
        """Take the record away: whatever this consumer still holds, it has not died over it."""
        own, self._own = self._own, None
        if own is not None:
            self._delete(own)

    def note(self, names: Collection[str]) -> tuple[Operation, ...]:
        """What a claim writes: the names that this consumer holds with it."""
        return (
            () if self._own is None else (SetData(self._own, json.dumps(sorted(names)).encode()),)
        )

    def refresh(self, members: Collection[str]) -> None:
        """Read the records of those that are not among ``members``, which must be listed later than
        the records: see :meth:`listed`. Raises what the session raises.
        """
        dead = [name for name in self._listed if name not in members]
        new = [name for name in dead if name not in self._left]
        self._left = {name: held for name, held in self._left.items() if name in dead}
        if not new:
            return
        paths = [join(self._paths.claims, name) for name in new]
        for name, answer in zip(
            new, self._session.multi_read([GetData(path) for path in paths]), strict=True
        ):
            if isinstance(answer, tuple):
                held = self._still_there(_names(answer[0]))
                log.warning("consumer died queue=%s items=%d", self._paths.path, len(held))
                self._left[name] = held
                self._resolved[name] = set()
                self._drop_if_resolved(name)

    def listed(self) -> None:
        self._listed = children_of(self._session, self._paths.claims)

    @property
    def has_suspects(self) -> bool:
        """Whether there are items over which consumers may have died."""
        return bool(self._left)

    def is_suspect(self, name: str) -> bool:
        """Whether several consumers died while they held it, and it is not known over what."""
        told = {one for held in self._left.values() if len(held) == 1 for one in held}
        return sum(name in held and not held & told for held in self._left.values()) > 1

    def deaths_of(self, name: str) -> int:
        """How many consumers have died over it, as far as is certain."""
        sizes = [len(held) for held in self._left.values() if name in held]
        return len(sizes) if 1 in sizes else 0

    def settled(self, names: Iterable[str]) -> None:
        """These are dealt with, and not suspects any more."""
        if not self._left:
            return
        settled = set(names)
        for record, held in list(self._left.items()):
            self._resolved[record] |= held & settled
            self._drop_if_resolved(record)

    def _drop_if_resolved(self, record: str) -> None:
        if self._left[record] <= self._resolved[record]:
            del self._left[record], self._resolved[record]
            self._delete(join(self._paths.claims, record))

    def _still_there(self, names: set[str]) -> set[str]:
        ordered = sorted(names)
        stats = [self._session.exists_async(self._paths.item(name)) for name in ordered]
        return {
            name for name, stat in zip(ordered, stats, strict=True) if stat.result(10.0) is not None
        }

    def _delete(self, path: str) -> None:
        try:
            self._session.delete(path, timeout_s=1.0)
        except NoNode:
            return
        except LeaderqError as exc:
            level = logging.DEBUG if isinstance(exc, ConnectionLost) else logging.WARNING
            log.log(level, "claim record stays path=%s error=%s", path, exc)


def _names(data: bytes) -> set[str]:
    try:
        said = json.loads(data or b"[]")
    except ValueError:
        return set()
    return {name for name in said if isinstance(name, str)} if isinstance(said, list) else set()
