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
    """Choices out of one number, below one root; small numbers make simple ones."""

    def __init__(self, number: int, root: str) -> None:
        self._left = number
        self.root = root

    @property
    def is_done(self) -> bool:
        return self._left == 0

    def below(self, limit: int) -> int:
        self._left, chosen = divmod(self._left, limit)
        return chosen

    def of(self, options: Any) -> Any:
        return options[self.below(len(options))]

    def path(self) -> str:
        return self.root + str(self.of(PATHS))

    def version(self) -> int:
        return int(self.of((-1, -1, 0, 1)))

    def watcher(self) -> Any:
        """None, or a one-shot watch: what matters is that the server knows of it."""
        return self.of((None, print))

    def with_data(self, make: Callable[[bytes], Any]) -> Any:
        """A request with some data: a little, or as much as may be, or a byte more."""
        kind = self.below(64)
        if kind < 60:
            return make(b"." * (kind % 3))
        most = MAX_BYTES - wire.HEADER_BYTES - len(make(b"...").serialize()) + 3
        return make(b"." * (most // 2 if kind < 62 else most + kind - 62))


def _create(draw: Draw) -> Any:
    flags = draw.of((0, 0, 0, 0, 1, 2, 3))
    path, acl = draw.path(), draw.of(ACLS)
    if flags & wire.SEQUENTIAL and draw.below(2):
        path += "/"
    return draw.with_data(lambda data: kazoo_wire.Create(path, data, acl, flags))


def _set(draw: Draw) -> Any:
    path, version = draw.path(), draw.version()
    return draw.with_data(lambda data: kazoo_wire.SetData(path, data, version))


def _multi(draw: Draw) -> Any:
    parts = [_operation(draw) for _ in range(1 + draw.below(4))]
    path, acl = draw.path(), draw.of(ACLS)

    def made(data: bytes) -> Any:
        also = [wire.SetData(path, data)] if len(data) > 2 else []
        return wire.Multi([*parts, *also], lambda path, _: path, acl)

    return draw.with_data(made)


def _operation(draw: Draw) -> wire.Operation:
    kind, path = draw.below(5), draw.path()
    if kind == 0:
        return wire.SetData(path, b"." * draw.below(3), draw.version())
    if kind == 1:
        return wire.Delete(path, draw.version())
    if kind == 2:
        return wire.Check(path, draw.version())
    flags = draw.below(4)
    path += "/" if flags >= 2 and draw.below(2) else ""
    return wire.Create(path, b"x", ephemeral=bool(flags & 1), sequential=bool(flags & 2))


def _multi_read(draw: Draw) -> Any:
    kinds = (wire.GetData, wire.GetChildren)
    reads = [draw.of(kinds)(draw.path()) for _ in range(1 + draw.below(3))]
    return wire.MultiRead(reads, lambda path, _: path)


def _authenticate(draw: Draw) -> Any:
    scheme = "digest" if draw.below(16) < 15 else "unknown"
    return kazoo_wire.Auth(0, scheme, draw.of(USERS))


_WEIGHTS: dict[Callable[[Draw], Any], int] = {
    _create: 3,
    _set: 3,
    _multi: 2,
    _multi_read: 1,
    _authenticate: 1,
    lambda draw: kazoo_wire.Delete(draw.path(), draw.version()): 2,
    lambda draw: kazoo_wire.Exists(draw.path(), draw.watcher()): 1,
    lambda draw: kazoo_wire.GetData(draw.path(), draw.watcher()): 2,
    lambda draw: kazoo_wire.GetChildren(draw.path(), draw.watcher()): 2,
    lambda draw: kazoo_wire.GetChildren2(draw.path(), draw.watcher()): 1,
    lambda draw: kazoo_wire.Sync(draw.path()): 1,
    lambda draw: kazoo_wire.GetACL(draw.path()): 1,
    lambda draw: kazoo_wire.SetACL(draw.path(), draw.of(ACLS), draw.version()): 1,
    lambda draw: wire.ChildData(f"{draw.root}/", ["a", "b", "c"][: 1 + draw.below(3)]): 1,
    lambda draw: wire.AddWatch(draw.path(), draw.below(2)): 3,
    lambda draw: wire.RemoveWatches(draw.path(), draw.of((4, 5, 3, 2, 1))): 1,
}
_MAKERS = [make for make, weight in _WEIGHTS.items() for _ in range(weight)]


def drawn_request(draw: Draw) -> Any:
    return draw.of(_MAKERS)(draw)


def shown(request: Any) -> str:
    return f"{type(request).__name__} {bytes(request.serialize())!r}"
