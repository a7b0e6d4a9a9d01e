"""Turns a client's write into a proposal, which only the leader of an ensemble does.

A write is judged by the newest state, which has everything that was proposed, committed or not. Its
changes are decided here once, as new versions of znodes, so servers that apply the same proposals
cannot differ. A refused write is a proposal, too: it has no changes, and takes a zxid.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from kazoo.security import ACL, Id

from leaderq.testing.simulation.ensemble import bodies
from leaderq.testing.simulation.ensemble.java_sets import JavaSet
from leaderq.testing.simulation.ensemble.messages import (
    CHANGED,
    CREATED,
    DELETED,
    OK,
    Code,
    RequestError,
    RequestType,
)
from leaderq.testing.simulation.ensemble.tree import (
    ADMIN,
    CREATE,
    DELETE,
    OPEN,
    OWNER,
    READ,
    SPECIAL_PATHS,
    WRITE,
    Change,
    Znode,
    is_allowed,
    made_stat,
    parent_path,
    stored_acl,
)
from leaderq.zookeeper.wire import ANY_VERSION, EPHEMERAL, SEQUENTIAL, Failed, Stat

_CHECK: Final = 13
_ROLLED_BACK: Final = Failed(OK)
NEVER_LOOKED_AT: Final = Failed(Code.RUNTIME_INCONSISTENCY)
Trigger = tuple[int, str, tuple[ACL, ...], tuple[ACL, ...]]
"""The kind of an event, its path, and the ACLs of the znode and of the one above."""


class Proposal:
    """One entry of the ordered log.

    ``value`` and ``code`` are the answer to the write. ``opens`` is the time-out of a new session
    in ms; ``closes`` says that the session is over. ``origin`` is the request as the client's
    server keeps it; other servers ignore it.
    """

    __slots__ = (
        "changes", "closes", "code", "opens", "origin", "session_id", "triggers", "value", "zxid",
    )  # fmt: skip

    def __init__(self, zxid: int, session_id: int, origin: object) -> None:
        self.zxid = zxid
        self.session_id = session_id
        self.origin = origin
        self.changes: Sequence[Change] = ()
        self.triggers: Sequence[Trigger] = ()
        self.value: Any = None
        self.code = OK
        self.opens = 0
        self.closes = False


class NewestState:
    """Everything that was proposed: znodes by path, and which znodes each session owns."""

    __slots__ = ("ephemerals", "is_shared", "nodes")

    def __init__(self, nodes: dict[str, Znode], *, is_shared: bool) -> None:
        self.nodes = nodes
        self.is_shared = is_shared
        """Whether the only server's own tree is the newest state, and is changed by that server."""
        self.ephemerals: dict[int, JavaSet] = {}
        for path, znode in nodes.items():
            if znode.stat[OWNER]:
                self.ephemerals.setdefault(znode.stat[OWNER], JavaSet()).add(path)

    def accept(self, changes: Sequence[Change]) -> None:
        """These changes are proposed."""
        nodes, ephemerals = self.nodes, self.ephemerals
        latest: dict[str, Znode | None] | None = {} if isinstance(changes, list) else None
        for path, znode in changes:
            before = nodes.get(path) if not latest or path not in latest else latest[path]
            was = 0 if before is None else before.stat[OWNER]
            owner = 0 if znode is None else znode.stat[OWNER]
            if was != owner:
                if was:
                    ephemerals[was].pop(path, None)
                if owner:
                    ephemerals.setdefault(owner, JavaSet()).add(path)
            if latest is not None:
                latest[path] = znode
            if self.is_shared:
                continue
            if znode is None:
                nodes.pop(path, None)
            else:
                nodes[path] = znode


class _Steps(dict[str, "Znode | None"]):
    """The newest change of each path; ``listed`` holds all changes, in their order. It is needed if
    one multi creates a path that it has deleted, or the reverse, because tables of names grow
    meanwhile.
    """

    __slots__ = ("listed",)

    def __init__(self, before: dict[str, Znode | None]) -> None:
        super().__init__(before)
        self.listed: list[Change] = list(before.items())

    def __setitem__(self, path: str, znode: Znode | None) -> None:
        super().__setitem__(path, znode)
        self.listed.append((path, znode))

    def clear(self) -> None:
        super().clear()
        self.listed.clear()


class Draft:
    """The changes that one write would make; they are kept only if no part of the write is
    refused.
    """

    __slots__ = ("_identities", "_nodes", "_session_id", "_time_ms", "_zxid", "changes", "triggers")

    def __init__(
        self,
        nodes: dict[str, Znode],
        zxid: int,
        time_ms: int,
        session_id: int,
        identities: Sequence[Id],
    ) -> None:
        self._nodes = nodes
        self._zxid = zxid
        self._time_ms = time_ms
        self._session_id = session_id
        self._identities = identities
        self.changes: dict[str, Znode | None] = {}
        self.triggers: list[Trigger] = []

    def listed(self) -> Sequence[Change]:
        """The changes in their order."""
        changes = self.changes
        return changes.listed if isinstance(changes, _Steps) else tuple(changes.items())

    def _list(self) -> None:
        if not isinstance(self.changes, _Steps):
            self.changes = _Steps(self.changes)

    def _found(self, path: str) -> Znode | None:
        changes = self.changes
        return changes[path] if path in changes else self._nodes.get(path)

    def _existing(self, path: str) -> Znode:
        changes = self.changes
        znode = changes[path] if path in changes else self._nodes.get(path)
        if znode is None:
            raise RequestError(Code.NO_NODE)
        return znode

    def _permit(self, acl: tuple[ACL, ...], permission: int) -> None:
        if acl is not OPEN and not is_allowed(acl, permission, self._identities):
            raise RequestError(Code.NO_AUTH)

    def create(self, path: str, data: bytes | None, flags: int, acl: Sequence[ACL]) -> str:
        """Returns the path created."""
        kept = stored_acl(acl, self._identities)
        above = path[: path.rfind("/")] or "/"
        parent = self._existing(above)
        self._permit(parent.acl, CREATE)
        if flags & SEQUENTIAL:
            path = f"{path}{parent.creates:010d}"
        if self._found(path) is not None:
            raise RequestError(Code.NODE_EXISTS)
        if path in self.changes:
            self._list()
        stat = parent.stat
        if stat[OWNER]:
            raise RequestError(Code.NO_CHILDREN_FOR_EPHEMERALS)
        zxid, now = self._zxid, self._time_ms
        creates, count = parent.creates + 1, stat[9] + 1
        stat = made_stat((*stat[:5], 2 * creates - count, *stat[6:9], count, zxid))
        self.changes[above] = Znode(parent.data, stat, parent.acl, creates)
        owner = self._session_id if flags & EPHEMERAL else 0
        size = 0 if data is None else len(data)
        stat = made_stat((zxid, zxid, now, now, 0, 0, 0, owner, size, 0, zxid))
        self.changes[path] = Znode(data, stat, kept, 0)
        self.triggers.append((CREATED, path, kept, parent.acl))
        return path

    def set_data(self, path: str, data: bytes | None, version: int) -> Any:
        """Returns the new ``ZnodeStat``."""
        znode = self._existing(path)
        self._permit(znode.acl, WRITE)
        stat = znode.stat
        if version not in (ANY_VERSION, stat[4]):
            raise RequestError(Code.BAD_VERSION)
        size = 0 if data is None else len(data)
        stat = made_stat(
            (stat[0], self._zxid, stat[2], self._time_ms, stat[4] + 1, *stat[5:8], size, *stat[9:])
        )
        self.changes[path] = Znode(data, stat, znode.acl, znode.creates)
        self.triggers.append((CHANGED, path, znode.acl, OPEN))
        return stat

    def delete(self, path: str, version: int) -> None:
        if path in SPECIAL_PATHS:
            raise RequestError(Code.BAD_ARGUMENTS)
        parent = self._existing(parent_path(path))
        self._permit(parent.acl, DELETE)
        znode = self._existing(path)
        if version not in (ANY_VERSION, znode.stat[4]):
            raise RequestError(Code.BAD_VERSION)
        if znode.stat[9]:
            raise RequestError(Code.NOT_EMPTY)
        self._delete(path, znode)

    def _delete(self, path: str, znode: Znode) -> None:
        if znode.stat[0] == self._zxid:
            self._list()
        above = path[: path.rfind("/")] or "/"
        parent = self._existing(above)
        stat, count = parent.stat, parent.stat[9] - 1
        stat = made_stat((*stat[:5], 2 * parent.creates - count, *stat[6:9], count, self._zxid))
        self.changes[above] = Znode(parent.data, stat, parent.acl, parent.creates)
        self.changes[path] = None
        self.triggers.append((DELETED, path, znode.acl, parent.acl))

    def check(self, path: str, version: int) -> None:
        znode = self._existing(path)
        self._permit(znode.acl, READ)
        if version not in (ANY_VERSION, znode.stat[4]):
            raise RequestError(Code.BAD_VERSION)

    def set_acl(self, path: str, acl: Sequence[ACL], version: int) -> Any:
        """Returns the new ``ZnodeStat``."""
        kept = stored_acl(acl, self._identities)
        znode = self._existing(path)
        self._permit(znode.acl, ADMIN)
        stat = znode.stat
        if version not in (ANY_VERSION, stat[6]):
            raise RequestError(Code.BAD_VERSION)
        stat = made_stat((*stat[:6], stat[6] + 1, *stat[7:]))
        self.changes[path] = Znode(znode.data, stat, kept, znode.creates)
        return stat

    def delete_all(self, paths: Sequence[str]) -> None:
        """Delete what a session owned."""
        for path in paths:
            self._delete(path, self._existing(path))

    # -- whole requests ----------------------------------------------------------------------------

    def do(self, request: Any, kind: int) -> Any:
        """Add the changes of ``request``; return the value of the answer.

        :raises RequestError: the request is refused, and the draft must be dropped.
        """
        if kind == RequestType.SET_DATA:
            return self.set_data(request.path, request.data, request.version)
        if kind == RequestType.CREATE:
            return self.create(request.path, request.data, request.flags, request.acl)
        if kind == RequestType.DELETE:
            self.delete(request.path, request.version)
            return True
        if kind == RequestType.SET_ACL:
            return self.set_acl(request.path, request.acls, request.version)
        assert kind == RequestType.MULTI
        return self._multi(bodies.operations(request.serialize()))

    def _multi(self, parts: Any) -> list[Any]:
        results: list[Any] = []
        failed: int | None = None
        for part in parts:
            if failed is not None:
                results.append(NEVER_LOOKED_AT)
                continue
            try:
                results.append(self._part(part))
            except RequestError as error:
                failed = error.code
                results = [_ROLLED_BACK] * len(results)
                results.append(Failed(failed))
        if failed is not None:
            self.changes.clear()
            self.triggers.clear()
        return results

    def _part(self, part: bodies.MultiPart) -> Any:
        kind, path, data, number, acl = part
        if kind == RequestType.CREATE:
            return self.create(path, data, number, acl)
        if kind == RequestType.SET_DATA:
            return Stat._make(self.set_data(path, data, number))
        if kind == RequestType.DELETE:
            return self.delete(path, number)
        assert kind == _CHECK
        return self.check(path, number)
