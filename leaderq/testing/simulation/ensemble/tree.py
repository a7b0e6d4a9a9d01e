"""The znodes that one server has applied: values by path, and the names below each."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from functools import partial
from hashlib import sha1
from typing import Any, Final, NamedTuple

from kazoo.protocol.states import ZnodeStat
from kazoo.security import ACL, ANYONE_ID_UNSAFE, OPEN_ACL_UNSAFE, Id

from leaderq.testing.simulation.ensemble.java_sets import CHILDREN_CAPACITY, JavaSet
from leaderq.testing.simulation.ensemble.messages import Code, RequestError

made_stat: Final[partial[Any]] = partial(tuple.__new__, ZnodeStat)
"""A ``ZnodeStat`` of a tuple; the quick way."""
OPEN: Final[tuple[ACL, ...]] = tuple(OPEN_ACL_UNSAFE)
"""The one object for the ACL that allows everything to everybody."""
SPECIAL_PATHS: Final = frozenset(("/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"))
OWNER: Final = 7
"""Where a ``ZnodeStat`` holds the session that owns the znode."""


class Znode(NamedTuple):
    """One version of a znode. It is never changed, so all servers share it.

    ``creates`` counts all children that were ever created; sequence numbers come from it. The
    ``cversion`` of the stat counts creations and deletions.
    """

    data: bytes | None
    stat: Any
    acl: tuple[ACL, ...]
    creates: int


Change = tuple[str, "Znode | None"]
"""A path and its new version; ``None`` if the znode is deleted."""


def parent_path(path: str) -> str:
    """The path of the parent; that of the root is the root."""
    return path[: path.rfind("/")] or "/"


class Tree:
    """All znodes as one server sees them."""

    __slots__ = ("_children", "nodes")

    def __init__(self) -> None:
        self.nodes: dict[str, Znode] = {}
        self._children: dict[str, JavaSet] = {}
        for path in ("/", "/zookeeper", "/zookeeper/config", "/zookeeper/quota"):
            count = {"/": 1, "/zookeeper": 2}.get(path, 0)
            stat = made_stat((0, 0, 0, 0, 0, -count, 0, 0, 0, count, 0))
            self.apply([(path, Znode(b"", stat, OPEN, 0))])
        self._children["/"].pop("", None)

    def apply(self, changes: Iterable[Change]) -> None:
        """Make these changes."""
        nodes, children = self.nodes, self._children
        for path, znode in changes:
            if znode is not None:
                if path not in nodes:
                    above, _, name = path.rpartition("/")
                    names = children.get(above or "/")
                    if names is None:
                        names = children[above or "/"] = JavaSet(CHILDREN_CAPACITY)
                    names.add(name)
                nodes[path] = znode
            elif nodes.pop(path, None) is not None:
                above, _, name = path.rpartition("/")
                names = children.get(above or "/")
                if names is not None:  # its parent was deleted by the same multi
                    names.pop(name, None)
                children.pop(path, None)

    def names_below(self, path: str) -> list[str]:
        """The names of a znode's children, in the order in which a server lists them."""
        names = self._children.get(path)
        return [] if names is None else names.listed()

    def copy(self) -> Tree:
        """A tree of the same znodes, with tables of its own."""
        twin = Tree()
        twin.nodes = self.nodes.copy()
        twin._children = {path: names.copy() for path, names in self._children.items()}
        return twin


# -- access ----------------------------------------------------------------------------------------


def digest_id(credentials: str) -> Id:
    """Who has authenticated with ``user:password``."""
    user = credentials.partition(":")[0]
    digest = b64encode(sha1(credentials.encode()).digest()).decode()
    return Id("digest", f"{user}:{digest}")


def is_allowed(acl: Sequence[ACL], permission: int, identities: Sequence[Id]) -> bool:
    """Whether a client with these identities has this permission."""
    return acl is OPEN or any(
        entry.perms & permission and (entry.id == ANYONE_ID_UNSAFE or entry.id in identities)
        for entry in acl
    )


def stored_acl(acl: Sequence[ACL], identities: Sequence[Id]) -> tuple[ACL, ...]:
    """The ACL in the form that is stored: "whoever created it" is replaced by the creator's
    identities.

    :raises RequestError: the ACL is empty, or is for nobody that is known.
    """
    if len(acl) == 1 and acl[0] == OPEN[0]:
        return OPEN
    kept: list[ACL] = []
    for entry in dict.fromkeys(acl):
        if entry.id.scheme == "auth" and identities:
            kept.extend(ACL(entry.perms, one) for one in identities)
        elif entry.id == ANYONE_ID_UNSAFE or _is_digest(entry.id):
            kept.append(entry)
        else:
            raise RequestError(Code.INVALID_ACL)
    if not kept:
        raise RequestError(Code.INVALID_ACL)
    return OPEN if len(kept) == 1 and kept[0] == OPEN[0] else tuple(kept)


def _is_digest(who: Id) -> bool:
    return who.scheme == "digest" and len(who.id.rstrip(":").split(":")) == 2


def shown_acl(acl: Sequence[ACL], identities: Sequence[Id]) -> list[ACL]:
    """The ACL as a client that may read it sees it: without digests, unless the client may change
    it.
    """
    if is_allowed(acl, ADMIN, identities):
        return list(acl)
    return [
        ACL(entry.perms, Id("digest", f"{entry.id.id.partition(':')[0]}:x"))
        if entry.id.scheme == "digest"
        else entry
        for entry in acl
    ]


READ: Final = 1
WRITE: Final = 2
CREATE: Final = 4
DELETE: Final = 8
ADMIN: Final = 16
