"""Requests that kazoo has no class for, and the multi in a leaner form; pure bytes, no I/O.

Each has the shape kazoo's connection expects of a request (``type``, ``serialize()``, ``deserialize(buffer, offset)``),
with all paths as the server sees them (chroot included). The body is packed once, in the caller's thread, so that its
size is known before anything is sent and kazoo's one connection thread only copies it. The repr never shows data.

Sources: ``zookeeper.jute`` and ``ZooDefs.OpCode`` of Apache ZooKeeper: 14 multi, 18 removeWatches, 22 multiRead, 106
addWatch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from kazoo.security import ACL


class Stat(NamedTuple):
    """A znode's metadata. ``ephemeral_owner`` is the id of the owning session, 0 for a persistent znode.

    ``version`` counts data writes since the znode was created, and starts at 0 again when it is deleted and created anew:
    only ``czxid`` tells two lives of one path apart.
    """

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


ANY_VERSION = -1


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode. With ``sequential`` the server appends ten digits to ``path``. Result in a multi: the path made."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace a znode's data if its version is ``version`` (-1: whatever it is). Result in a multi: its ``Stat``."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a znode if its version is ``version`` (-1: whatever it is). Result in a multi: ``None``."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Let the whole multi fail unless the znode exists and has this data version (-1: any). Result: ``None``.

    Only the data version is compared, and it restarts at 0 when a znode is deleted and created again: a check fences only
    if its path is never used twice.
    """

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class GetData:
    """Read a znode's data and metadata. Result in a multi_read: ``(data, Stat)``."""

    path: str


@dataclass(frozen=True, slots=True)
class GetChildren:
    """List a znode's children by name, in no order. Result in a multi_read: a list of names."""

    path: str


Operation = Create | SetData | Delete | Check
Read = GetData | GetChildren


MAX_REQUEST_BYTES = 0xFFFFF
"""The server's default ``jute.maxbuffer``: it drops the connection, without a word, on any larger request."""
HEADER_BYTES = 8
"""xid and type, which count towards the limit."""

_INT = struct.Struct("!i")
_MULTI_HEADER = struct.Struct("!iBi")
_MULTI_END = _MULTI_HEADER.pack(-1, 1, -1)
_STAT = struct.Struct("!qqqqiiiqiiq")
_CTIME_AND_VERSION = struct.Struct("!16xq8xi")  # of a Stat
_CREATE, _DELETE, _GET, _SET, _CHILDREN, _CHECK, _ERROR = 1, 2, 4, 5, 8, 13, -1
_CREATE_HEADER, _DELETE_HEADER, _SET_HEADER, _CHECK_HEADER = (
    _MULTI_HEADER.pack(kind, 0, -1) for kind in (_CREATE, _DELETE, _SET, _CHECK)
)


class Request(Protocol):
    """What kazoo's connection needs of a request."""

    @property
    def type(self) -> int: ...

    def serialize(self) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Failed:
    """ZooKeeper's error code for one operation of a multi or multiRead."""

    code: int

    @property
    def is_consequence(self) -> bool:
        """Whether another operation is to blame: rolled back (0), or never looked at (-2)."""
        return self.code in (0, -2)


def _string(text: str) -> bytes:
    raw = text.encode()
    return _INT.pack(len(raw)) + raw


def _packed_acl(acl: Sequence[ACL]) -> bytes:
    parts = [_INT.pack(len(acl))]
    for entry in acl:
        parts += (_INT.pack(entry.perms), _string(entry.id.scheme), _string(entry.id.id))
    return b"".join(parts)


class Multi:
    """All of these operations or none."""

    type = 14
    __slots__ = ("_body", "count")

    def __init__(self, operations: Sequence[Operation], server_path: Callable[[str, bool], str], acl: Sequence[ACL]) -> None:
        self.count = len(operations)
        packed_acl = _packed_acl(acl)
        heads: dict[str, bytes] = {}
        parts: list[bytes] = []
        for op in operations:
            parts += _operation(op, server_path, packed_acl, heads)
        self._body = b"".join((*parts, _MULTI_END))

    def __repr__(self) -> str:
        return f"Multi({self.count} operations, {len(self._body)} bytes)"

    def serialize(self) -> bytes:
        return self._body

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> list[Any]:
        """One ``str``, :class:`Stat`, ``None`` or :class:`Failed` per operation."""
        results: list[Any] = []
        while True:
            kind, done, _ = _MULTI_HEADER.unpack_from(buffer, offset)
            offset += _MULTI_HEADER.size
            if done:
                return results
            result: Any = None
            if kind == _CREATE:
                result, offset = _read_string(buffer, offset)
            elif kind == _SET:
                result, offset = _read_stat(buffer, offset)
            elif kind == _ERROR:
                result, offset = _read_failed(buffer, offset)
            results.append(result)


class MultiRead:
    """Many reads in one request, each with its own outcome."""

    type = 22
    __slots__ = ("_body", "count")

    def __init__(self, reads: Sequence[Read], server_path: Callable[[str, bool], str]) -> None:
        self.count = len(reads)
        self._body = b"".join([_read(one, server_path) for one in reads]) + _MULTI_END

    def __repr__(self) -> str:
        return f"MultiRead({self.count} reads)"

    def serialize(self) -> bytes:
        return self._body

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> list[Any]:
        """One ``(bytes, Stat)``, ``list[str]`` or :class:`Failed` per read."""
        results: list[Any] = []
        while True:
            kind, done, _ = _MULTI_HEADER.unpack_from(buffer, offset)
            offset += _MULTI_HEADER.size
            if done:
                return results
            result: Any
            if kind == _GET:
                data, offset = _read_buffer(buffer, offset)
                stat, offset = _read_stat(buffer, offset)
                result = (data, stat)
            elif kind == _CHILDREN:
                result, offset = _read_strings(buffer, offset)
            else:
                result, offset = _read_failed(buffer, offset)
            results.append(result)


class WatchMode:
    """Modes of a persistent watch, and the types by which removeWatches names them (since ZooKeeper 3.9)."""

    NODE = 0
    TREE = 1
    REMOVE: Final[dict[int, int]] = {NODE: 4, TREE: 5}


@dataclass(frozen=True, slots=True)
class AddWatch:
    """Set a persistent watch; it stays until removed or the connection ends."""

    path: str
    mode: int
    type = 106

    def serialize(self) -> bytes:
        return _string(self.path) + _INT.pack(self.mode)

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class RemoveWatches:
    """Remove watches of this session from one path."""

    path: str
    kind: int
    type = 18

    def serialize(self) -> bytes:
        return _string(self.path) + _INT.pack(self.kind)

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> bool:
        return True


def _operation(
    op: Operation, server_path: Callable[[str, bool], str], acl: bytes, heads: dict[str, bytes]
) -> tuple[bytes, ...]:
    """The parts of one operation; ``heads`` are those of sequential creates, of which many in one multi begin the same."""
    if isinstance(op, Create):
        flags = (1 if op.ephemeral else 0) | (2 if op.sequential else 0)
        head = heads.get(op.path) if op.sequential else None
        if head is None:
            head = _CREATE_HEADER + _string(server_path(op.path, op.sequential))
            if op.sequential:
                heads[op.path] = head
        return head, _INT.pack(len(op.data)), op.data, acl, _INT.pack(flags)
    path = _string(server_path(op.path, False))
    if isinstance(op, SetData):
        return _SET_HEADER, path, _INT.pack(len(op.data)), op.data, _INT.pack(op.version)
    if isinstance(op, Delete):
        return _DELETE_HEADER, path, _INT.pack(op.version)
    if isinstance(op, Check):
        return _CHECK_HEADER, path, _INT.pack(op.version)
    raise TypeError(f"{op!r} is not an operation of a multi")


class ReadNamed:
    """The data of many children of one znode in one request; lean, for those who read hundreds of thousands."""

    type = 22
    __slots__ = ("_body", "count")

    def __init__(self, server_parent: str, names: Sequence[str]) -> None:
        self.count = len(names)
        head, prefix = _header(_GET), server_parent.encode().rstrip(b"/") + b"/"
        raws = [name.encode() for name in names]
        self._body = b"".join([head + _INT.pack(len(prefix) + len(raw)) + prefix + raw + b"\0" for raw in raws]) + _MULTI_END

    def __repr__(self) -> str:
        return f"ReadNamed({self.count} znodes)"

    def serialize(self) -> bytes:
        return self._body

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> list[Any]:
        """One ``(data, ctime_ms, version)`` or :class:`Failed` per znode."""
        results: list[Any] = []
        while True:
            kind, done, _ = _MULTI_HEADER.unpack_from(buffer, offset)
            offset += _MULTI_HEADER.size
            if done:
                return results
            if kind == _GET:
                data, offset = _read_buffer(buffer, offset)
                results.append((data, *_CTIME_AND_VERSION.unpack_from(buffer, offset)))
                offset += _STAT.size
            else:
                failed, offset = _read_failed(buffer, offset)
                results.append(failed)


def _read(one: Read, server_path: Callable[[str, bool], str]) -> bytes:
    if not isinstance(one, (GetData, GetChildren)):
        raise TypeError(f"{one!r} is not a read of a multi_read")
    return _header(_GET if isinstance(one, GetData) else _CHILDREN) + _string(server_path(one.path, False)) + b"\0"


def _header(kind: int) -> bytes:
    return _MULTI_HEADER.pack(kind, 0, -1)


def _read_buffer(buffer: bytes, offset: int) -> tuple[bytes, int]:
    (length,) = _INT.unpack_from(buffer, offset)
    offset += 4
    return (b"", offset) if length < 0 else (bytes(buffer[offset : offset + length]), offset + length)


def _read_string(buffer: bytes, offset: int) -> tuple[str, int]:
    raw, offset = _read_buffer(buffer, offset)
    return raw.decode(), offset


def _read_strings(buffer: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = _INT.unpack_from(buffer, offset)
    offset += 4
    found = []
    for _ in range(count):
        name, offset = _read_string(buffer, offset)
        found.append(name)
    return found, offset


def _read_stat(buffer: bytes, offset: int) -> tuple[Stat, int]:
    return Stat._make(_STAT.unpack_from(buffer, offset)), offset + _STAT.size


def _read_failed(buffer: bytes, offset: int) -> tuple[Failed, int]:
    return Failed(_INT.unpack_from(buffer, offset)[0]), offset + 4
