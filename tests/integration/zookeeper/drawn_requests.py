"""Requests drawn at random, for one file of operations on real and simulated servers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kazoo.protocol import serialization as kazoo_wire
from kazoo.security import ACL, CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE, Id, make_acl

from leaderq.testing.simulation.ensemble.tree import digest_id
from leaderq.zookeeper import wire

MAX_BYTES = 1500
"""The largest request of these servers, with its header."""
PATHS = (
    "/a", "/a", "/a", "/b", "/b", "/a/a", "/a/a", "/a/b", "/a/a/c", "/b/x-", "/a/q-", "",
    "/a/q-0000000000", "/b/" + "n" * 300,
)  # fmt: skip
"""Below a root of each history; the empty one is that root."""
USERS = ("alice:secret", "bob:secret", "alice:wrong")
_ALICE, _BOB = (digest_id(user).id for user in USERS[:2])
ACLS: Sequence[list[ACL]] = (
    *[list(OPEN_ACL_UNSAFE)] * 20,
    list(CREATOR_ALL_ACL),
    list(CREATOR_ALL_ACL),
    list(READ_ACL_UNSAFE),
    [*READ_ACL_UNSAFE, *CREATOR_ALL_ACL],
    [make_acl("digest", _ALICE, all=True), *OPEN_ACL_UNSAFE, *OPEN_ACL_UNSAFE],
    [make_acl("digest", _ALICE, read=True, write=True), make_acl("digest", _BOB, admin=True)],
    [make_acl("digest", _BOB, create=True, delete=True), *READ_ACL_UNSAFE],
    [make_acl("world", "anyone", create=True, write=True, delete=True)],
    [ACL(0, Id("world", "anyone"))],
    [],
    [make_acl("digest", "neither user nor digest", all=True)],
    [make_acl("unknown", "scheme", all=True)],
    [make_acl("world", "somebody", all=True)],
)


class Draw:
    """Choices out of one number; small numbers make simple ones."""

    def __init__(self, number: int) -> None:
        self._left = number

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def below(self, limit: int) -> int:
        self._left, chosen = divmod(self._left, limit)
        return chosen

    def of(self, options: Any) -> Any:
        return options[self.below(len(options))]


def _watcher(_: object) -> None:
    """A one-shot watch: what matters is that the server knows of it."""


class RequestMaker:
    """Turns numbers into requests below one root."""

    def __init__(self, root: str) -> None:
        self._root = root

    def request(self, draw: Draw) -> Any:
        makers = (
            self._create, self._delete, self._set, self._exists, self._get, self._children,
            self._create, self._multi, self._set, self._multi, self._delete, self._multi_read,
            self._child_data, self._add_watch, self._remove_watches, self._get, self._children,
            self._create, self._sync, self._add_watch, self._add_watch, self._authenticate,
            self._get_acl, self._set_acl, self._children_2, self._set,
        )  # fmt: skip
        return draw.of(makers)(draw)

    def _path(self, draw: Draw) -> str:
        return self._root + str(draw.of(PATHS))

    def _version(self, draw: Draw) -> int:
        return int(draw.of((-1, -1, 0, 1)))

    def _data(self, draw: Draw, make: Callable[[bytes], Any]) -> Any:
        """A request with some data: a little, or as much as may be, or a byte more."""
        kind = draw.below(64)
        if kind < 60:
            return make(b"." * (kind % 3))
        most = MAX_BYTES - wire.HEADER_BYTES - len(make(b"...").serialize()) + 3
        return make(b"." * (most // 2 if kind < 62 else most + kind - 62))

    def _create(self, draw: Draw) -> Any:
        flags = draw.of((0, 0, 0, 0, 1, 2, 3))
        path, acl = self._path(draw), draw.of(ACLS)
        if flags & wire.SEQUENTIAL and draw.below(2):
            path += "/"
        return self._data(draw, lambda data: kazoo_wire.Create(path, data, acl, flags))

    def _delete(self, draw: Draw) -> Any:
        return kazoo_wire.Delete(self._path(draw), self._version(draw))

    def _set(self, draw: Draw) -> Any:
        path, version = self._path(draw), self._version(draw)
        return self._data(draw, lambda data: kazoo_wire.SetData(path, data, version))

    def _exists(self, draw: Draw) -> Any:
        return kazoo_wire.Exists(self._path(draw), draw.of((None, _watcher)))

    def _get(self, draw: Draw) -> Any:
        return kazoo_wire.GetData(self._path(draw), draw.of((None, _watcher)))

    def _children(self, draw: Draw) -> Any:
        return kazoo_wire.GetChildren(self._path(draw), draw.of((None, _watcher)))

    def _children_2(self, draw: Draw) -> Any:
        return kazoo_wire.GetChildren2(self._path(draw), draw.of((None, _watcher)))

    def _sync(self, draw: Draw) -> Any:
        return kazoo_wire.Sync(self._path(draw))

    def _authenticate(self, draw: Draw) -> Any:
        scheme = "digest" if draw.below(16) < 15 else "unknown"
        return kazoo_wire.Auth(0, scheme, draw.of(USERS))

    def _get_acl(self, draw: Draw) -> Any:
        return kazoo_wire.GetACL(self._path(draw))

    def _set_acl(self, draw: Draw) -> Any:
        return kazoo_wire.SetACL(self._path(draw), draw.of(ACLS), self._version(draw))

    def _multi(self, draw: Draw) -> Any:
        parts = [self._operation(draw) for _ in range(1 + draw.below(4))]
        path, acl = self._path(draw), draw.of(ACLS)

        def made(data: bytes) -> Any:
            also = [wire.SetData(path, data)] if len(data) > 2 else []
            return wire.Multi([*parts, *also], lambda path, _: path, acl)

        return self._data(draw, made)

    def _operation(self, draw: Draw) -> wire.Operation:
        kind, path = draw.below(5), self._path(draw)
        if kind == 0:
            return wire.SetData(path, b"." * draw.below(3), self._version(draw))
        if kind == 1:
            return wire.Delete(path, self._version(draw))
        if kind == 2:
            return wire.Check(path, self._version(draw))
        flags = draw.below(4)
        is_open_ended = flags >= 2 and draw.below(2)
        path += "/" if is_open_ended else ""
        return wire.Create(path, b"x", ephemeral=bool(flags & 1), sequential=bool(flags & 2))

    def _multi_read(self, draw: Draw) -> Any:
        kinds = (wire.GetData, wire.GetChildren)
        reads = [draw.of(kinds)(self._path(draw)) for _ in range(1 + draw.below(3))]
        return wire.MultiRead(reads, lambda path, _: path)

    def _child_data(self, draw: Draw) -> Any:
        return wire.ChildData(f"{self._root}/", ["a", "b", "c"][: 1 + draw.below(3)])

    def _add_watch(self, draw: Draw) -> Any:
        return wire.AddWatch(self._path(draw), draw.below(2))

    def _remove_watches(self, draw: Draw) -> Any:
        return wire.RemoveWatches(self._path(draw), draw.of((4, 5, 3, 2, 1)))


def shown(request: Any) -> str:
    return f"{type(request).__name__} {bytes(request.serialize())!r}"
