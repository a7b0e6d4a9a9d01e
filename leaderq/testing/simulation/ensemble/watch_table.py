"""The watches that the clients of one server have set, and the events that they get.

There are two tables. The *data* table hears of a znode that is created, deleted or changed; the
*children* table of a znode that gets or loses a child, or is deleted. A table tells a connection
once, however many watches the connection has there. Since ZooKeeper 3.9 a connection may have a
one-shot, a persistent and a recursive watch on one path at the same time; before, the newest
replaced the others.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from kazoo.security import ACL

from leaderq.testing.simulation.ensemble.messages import CHILDREN, CREATED, DELETED
from leaderq.testing.simulation.ensemble.tree import parent_path

ONE_SHOT: Final = 1
PERSISTENT: Final = 2
RECURSIVE: Final = 4
ALL_MODES: Final = 7


class Watcher(Protocol):
    """The receiver of events: one client's connection."""

    def tell(self, kind: int, path: str, acl: tuple[ACL, ...]) -> None:
        """Tell the client of an event, unless this ACL keeps it from reading the znode."""


class _Table:
    """Who watches which paths, in which modes."""

    __slots__ = ("_modes_stand_together", "_paths", "_recursive", "_watchers")

    def __init__(self, *, modes_stand_together: bool) -> None:
        self._modes_stand_together = modes_stand_together
        self._watchers: dict[str, dict[Watcher, int]] = {}
        self._paths: dict[Watcher, dict[str, None]] = {}
        self._recursive = 0

    def add(self, path: str, watcher: Watcher, mode: int) -> None:
        there = self._watchers.setdefault(path, {})
        before = there.get(watcher, 0)
        self._keep(
            there, path, watcher, before, before | mode if self._modes_stand_together else mode
        )

    def remove(self, path: str, watcher: Watcher, mode: int) -> bool:
        """Returns whether there was one."""
        there = self._watchers.get(path, {})
        before = there.get(watcher, 0)
        if not before & mode:
            return False
        self._keep(there, path, watcher, before, before & ~mode)
        return True

    def _keep(
        self, there: dict[Watcher, int], path: str, watcher: Watcher, before: int, after: int
    ) -> None:
        self._recursive += ((after & RECURSIVE) - (before & RECURSIVE)) // RECURSIVE
        if after:
            there[watcher] = after
            self._paths.setdefault(watcher, {})[path] = None
            return
        there.pop(watcher, None)
        if not there:
            self._watchers.pop(path, None)
        paths = self._paths[watcher]
        paths.pop(path, None)
        if not paths:
            del self._paths[watcher]

    def forget(self, watcher: Watcher) -> None:
        for path in list(self._paths.get(watcher, ())):
            there = self._watchers[path]
            self._keep(there, path, watcher, there[watcher], 0)

    def take(self, path: str, kind: int) -> dict[Watcher, None]:
        """Return the watchers to tell, and end their one-shot watches."""
        found: dict[Watcher, None] = {}
        there = self._watchers.get(path)
        if there:
            for watcher, modes in list(there.items()):
                if modes == RECURSIVE and kind == CHILDREN:
                    continue
                found[watcher] = None
                if modes & ONE_SHOT:
                    self._keep(there, path, watcher, modes, modes & ~ONE_SHOT)
        if self._recursive and kind != CHILDREN:
            while path != "/":
                path = parent_path(path)
                for watcher, modes in self._watchers.get(path, {}).items():
                    if modes & RECURSIVE:
                        found[watcher] = None
        return found

    def __bool__(self) -> bool:
        return bool(self._watchers)


class WatchTable:
    """All watches at one server."""

    __slots__ = ("_children", "_data", "_is_old")

    def __init__(self, version: tuple[int, ...]) -> None:
        self._is_old = version < (3, 9)
        self._data = _Table(modes_stand_together=not self._is_old)
        self._children = _Table(modes_stand_together=not self._is_old)

    def __bool__(self) -> bool:
        return bool(self._data) or bool(self._children)

    def watch_data(self, path: str, watcher: Watcher) -> None:
        """Add a one-shot watch, as a read of a znode or of its existence does."""
        self._data.add(path, watcher, ONE_SHOT)

    def watch_children(self, path: str, watcher: Watcher) -> None:
        """Add a one-shot watch, as a list of children does."""
        self._children.add(path, watcher, ONE_SHOT)

    def watch_for_good(self, path: str, watcher: Watcher, *, is_recursive: bool) -> None:
        """Add a watch that stays until it is removed or the connection ends."""
        mode = RECURSIVE if is_recursive else PERSISTENT
        self._data.add(path, watcher, mode)
        if self._is_old or not is_recursive:
            self._children.add(path, watcher, mode)

    def remove(self, path: str, watcher: Watcher, kind: int) -> bool | None:
        """Remove watches by a kind of removeWatches: 1 children, 2 data, 3 any, 4 persistent, 5
        recursive. Return whether there were any; ``None`` if this version does not know the kind.
        """
        data, children = self._data, self._children
        if kind > (3 if self._is_old else 5) or kind < 1:
            return None
        old_mode = ALL_MODES if self._is_old else ONE_SHOT
        if kind == 1:
            return children.remove(path, watcher, old_mode)
        if kind == 2:
            return data.remove(path, watcher, old_mode)
        if kind == 5:
            return data.remove(path, watcher, RECURSIVE)
        mode = ALL_MODES if kind == 3 else PERSISTENT
        removed = children.remove(path, watcher, mode)
        return data.remove(path, watcher, mode) or removed

    def forget(self, watcher: Watcher) -> None:
        """Its connection is over."""
        self._data.forget(watcher)
        self._children.forget(watcher)

    def fire(
        self,
        kind: int,
        path: str,
        acl: tuple[ACL, ...],
        acl_above: tuple[ACL, ...],
    ) -> None:
        """Tell the watchers of a znode about its change, in the order in which a server tells
        them.
        """
        told = self._data.take(path, kind)
        _tell(told, kind, path, acl)
        if kind == CREATED:
            above = parent_path(path)
            _tell(self._children.take(above, CHILDREN), CHILDREN, above, acl_above)
        elif kind == DELETED:
            others = self._children.take(path, DELETED)
            _tell((one for one in others if one not in told), DELETED, path, acl)
            above = parent_path(path)
            _tell(self._children.take(above, CHILDREN), CHILDREN, above, acl_above)


def _tell(watchers: Iterable[Watcher], kind: int, path: str, acl: tuple[ACL, ...]) -> None:
    for watcher in watchers:
        watcher.tell(kind, path, acl)
