"""What the znodes say of the shards, and what the leader writes there.

::

    <queue path>/queue-<uuid4>              a shard: a queue of its own (Curator's format)
    <queue path>-meta/retired/<shard name>  nothing more shall be put into that shard

Both are persistent.

Every write of a leader is fenced by its place in the latch. The first shard is also guarded by the
version of the root's data, which Curator never writes: of several processes that find no shard one
makes it, even if none of them can lead.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from leaderq.errors import BadVersion, LeaderqError, NoNode, NotEmpty
from leaderq.queues.wire.znodes import is_shard, new_shard_name
from leaderq.zookeeper import (
    Check,
    Create,
    Delete,
    GetData,
    Operation,
    Session,
    SetData,
    Stat,
    WatchEvent,
)
from leaderq.zookeeper.paths import join

log = logging.getLogger(__name__)


class ShardRegistry:
    """See the module. Not thread-safe but for :meth:`mark`. ``stirred`` is called on a ZooKeeper
    thread when something has changed.
    """

    def __init__(self, session: Session, root: str, notify: Callable[[], object]) -> None:
        self._session = session
        self.root = root
        self._marks = f"{root}-meta/retired"
        self._changed = notify
        self._warned: set[str] = set()

    def shards(self) -> list[str]:
        """The names of the shards; foreign children are left out, and told of once."""
        names = self._children(self.root)
        for name in names:
            if not is_shard(name) and name not in self._warned:
                self._warned.add(name)
                log.warning(
                    "%s in %s is no shard; it is left alone, but a Java sharder puts items into it",
                    name,
                    self.root,
                )
        return sorted(filter(is_shard, names))

    def marked(self) -> set[str]:
        return set(self._children(self._marks))

    def look_at(self, names: Sequence[str]) -> dict[str, Stat]:
        """Those of these that are there, in one request however many they are."""
        answers = self._session.multi_read([GetData(join(self.root, name)) for name in names])
        seen: dict[str, Stat] = {}
        for name, answer in zip(names, answers, strict=True):
            if isinstance(answer, tuple):
                seen[name] = answer[1]
            elif isinstance(answer, LeaderqError) and not isinstance(answer, NoNode):
                raise answer
        return seen

    def make_first(self, fence: str | None) -> bool:
        """Make a shard if there is none, as leader (``fence``: its place) or in the leader's stead;
        whether it was made by us.
        """
        # before the list: what is made later changes it
        version = self._session.get(self.root)[1].version
        if any(map(is_shard, self._session.children(self.root))):
            return False
        return self._make(fence, [SetData(self.root, b"", version)])

    def make_one_more(self, fence: str) -> bool:
        return self._make(fence, [])

    def mark(self, name: str) -> None:
        """Retire a shard. From any thread."""
        self._session.ensure_path(join(self._marks, name))

    def remove(self, name: str, fence: str) -> None:
        path, mark = join(self.root, name), join(self._marks, name)
        try:
            self._session.multi([Check(fence), Delete(path), Delete(mark)])
        except NotEmpty:
            log.info(
                "shard %s was retired and empty, and is put into again: is there a process that"
                " does not hear of it?",
                path,
            )
        except NoNode as exc:
            log.debug("shard %s is not removed: %s", path, exc)
        else:
            log.info("shard %s, retired and empty, was removed", path)

    def forget(self, name: str) -> None:
        if self._session.exists(join(self.root, name)) is not None:
            return
        try:
            self._session.delete(join(self._marks, name))
        except NoNode:
            log.debug("the mark of %s went by itself", name)

    def _make(self, fence: str | None, guard: list[Operation]) -> bool:
        path = join(self.root, new_shard_name())
        fences: list[Operation] = [] if fence is None else [Check(fence)]
        try:
            self._session.multi([*fences, *guard, Create(path)])
        except (BadVersion, NoNode) as exc:  # somebody was quicker, or leads instead
            log.debug("shard %s was not made: %s", path, exc)
            return False
        log.info("shard %s was made", path)
        return True

    def _children(self, path: str) -> list[str]:
        try:
            return self._session.children(path, watch=self._on_watch)
        except NoNode:
            self._session.ensure_path(path)
            return self._session.children(path, watch=self._on_watch)

    def _on_watch(self, _event: WatchEvent) -> None:
        self._changed()
