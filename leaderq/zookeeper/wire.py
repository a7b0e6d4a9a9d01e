"""The operations and requests of ZooKeeper that leaderq makes, and their bytes; pure, no I/O.

The operations of a multi and the reads of a multiRead are values, which can be kept, compared and
sent again. The requests are those that kazoo has no class for, and a leaner multi. They have the
form that kazoo's connection expects (``type``, ``serialize()``, ``deserialize(buffer, offset)``),
and paths as the server sees them. The body is packed once, in the caller's thread. No repr shows
data.

Sources: ``zookeeper.jute`` and ``ZooDefs.OpCode`` of Apache ZooKeeper: 14 multi, 18 removeWatches,
22 multiRead, 106 addWatch.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple

from kazoo.protocol.serialization import read_buffer, read_string, write_string
from kazoo.security import ACL

ANY_VERSION = -1
MAX_REQUEST_BYTES = 0xFFFFF
"""The server's default ``jute.maxbuffer``: a larger request makes it drop the connection."""
HEADER_BYTES = 8
"""xid and type, which count towards the limit."""
EPHEMERAL, SEQUENTIAL = 1, 2
_INT = struct.Struct("!i")
_MULTI_HEADER = struct.Struct("!iBi")
_PART = struct.Struct("!iBii")  # a header, and the length of the path behind it
_MULTI_END = _MULTI_HEADER.pack(-1, 1, -1)
_STAT = struct.Struct("!qqqqiiiqiiq")
_CTIME_AND_VERSION = struct.Struct("!16xq8xi32x")  # of a Stat
_CREATE, _DELETE, _GET, _SET, _CHILDREN, _CHECK, _ERROR = 1, 2, 4, 5, 8, 13, -1


class Stat(NamedTuple):
    """A znode's metadata. ``ephemeral_owner`` is the owning session's id, 0 if persistent.

    ``version`` starts at 0 again when a znode is deleted and created again: only ``czxid`` tells
    the old znode from the new one.
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


# -- what can be asked for -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode, with ten digits appended if ``sequential``. Result: the path created."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replace a znode's data if its version is ``version`` (-1: any). Result: its ``Stat``."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a znode if its version is ``version`` (-1: any). Result: ``None``."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Make the multi fail unless the znode exists in this version (-1: any). Result: ``None``.

    It is a fence only if its path is never used twice, because versions start at 0 again.
    """

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class GetData:
    """Read a znode's data and metadata. Result in a multi_read: ``(data, Stat)``."""

    path: str


@dataclass(frozen=True, slots=True)
class GetChildren:
    """List the names of a znode's children, in no order. Result in a multi_read: a list of
    names.
    """

    path: str


Operation = Create | SetData | Delete | Check
Read = GetData | GetChildren


# -- requests --------------------------------------------------------------------------------------


ServerPath = Callable[[str, bool], str]
"""From a path, and whether it may end in a slash, to the path that the server sees."""
Reader = Callable[[bytes, int], tuple[Any, int]]
"""From a buffer and an offset to the value there, and the offset after it."""


@dataclass(frozen=True, slots=True)
class Failed:
    """ZooKeeper's error code for one operation of a multi or multiRead."""

    code: int

    @property
    def is_consequence(self) -> bool:
        """Whether another operation failed, and this one was rolled back (0) or never tried
        (-2).
        """
        return self.code in (0, -2)


class PackedRequest:
    """A request of many parts, packed."""

    type: ClassVar[int]
    readers: ClassVar[Mapping[int, Reader]]
    __slots__ = ("_body", "count")

    def __init__(self, parts: Sequence[bytes], count: int) -> None:
        self._body = b"".join((*parts, _MULTI_END))
        self.count = count

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.count} parts, {len(self._body)} bytes)"

    def serialize(self) -> bytes:
        return self._body

    @classmethod
    def deserialize(cls, buffer: bytes, offset: int) -> list[Any]:
        """Return the results, in the order of the parts; a part that failed has a
        :class:`Failed`.
        """
        results: list[Any] = []
        readers, header = cls.readers, _MULTI_HEADER
        while True:
            kind, is_end, _ = header.unpack_from(buffer, offset)
            offset += header.size
            if is_end:
                return results
            result, offset = readers[kind](buffer, offset)
            results.append(result)


def _read_nothing(buffer: bytes, offset: int) -> tuple[None, int]:
    return None, offset


def _read_strings(buffer: bytes, offset: int) -> tuple[list[str], int]:
    (count,) = _INT.unpack_from(buffer, offset)
    offset += 4
    found = []
    for _ in range(count):
        name, offset = read_string(buffer, offset)
        found.append(name)
    return found, offset


def _read_stat(buffer: bytes, offset: int) -> tuple[Stat, int]:
    return Stat._make(_STAT.unpack_from(buffer, offset)), offset + _STAT.size


def _read_data_and_stat(buffer: bytes, offset: int) -> tuple[tuple[bytes, Stat], int]:
    data, offset = read_buffer(buffer, offset)
    stat, offset = _read_stat(buffer, offset)
    return (data or b"", stat), offset


def _read_child(buffer: bytes, offset: int) -> tuple[tuple[bytes, int, int], int]:
    begin = offset + 4
    end = begin + max(0, _INT.unpack_from(buffer, offset)[0])
    ctime_ms, version = _CTIME_AND_VERSION.unpack_from(buffer, end)
    return (buffer[begin:end], ctime_ms, version), end + _STAT.size


def _read_failed(buffer: bytes, offset: int) -> tuple[Failed, int]:
    return Failed(_INT.unpack_from(buffer, offset)[0]), offset + 4


class Multi(PackedRequest):
    """Carries out all operations, or none. Results: ``str`` (create), ``Stat`` (set) or
    ``None``.
    """

    __slots__ = ()
    type = 14
    readers = {  # noqa: RUF012 - never changed
        _CREATE: read_string,
        _DELETE: _read_nothing,
        _SET: _read_stat,
        _CHECK: _read_nothing,
        _ERROR: _read_failed,
    }

    def __init__(
        self, operations: Sequence[Operation], server_path: ServerPath, acl: Sequence[ACL]
    ) -> None:
        packed_acl = b"".join((_INT.pack(len(acl)), *map(_packed_entry, acl)))
        parts = [part for op in operations for part in _operation(op, server_path, packed_acl)]
        super().__init__(parts, len(operations))


class MultiRead(PackedRequest):
    """Many reads in one request. Results: ``(bytes, Stat)`` or ``list[str]``."""

    __slots__ = ()
    type = 22
    readers = {  # noqa: RUF012
        _GET: _read_data_and_stat,
        _CHILDREN: _read_strings,
        _ERROR: _read_failed,
    }

    def __init__(self, reads: Sequence[Read], server_path: ServerPath) -> None:
        super().__init__([_read(one, server_path) for one in reads], len(reads))


class ChildData(PackedRequest):
    """Reads the data of these children of one znode; the path of each is ``prefix`` and its name.
    Results: ``(data, ctime in ms, version)``.
    """

    __slots__ = ()
    type = MultiRead.type
    readers = {_GET: _read_child, _ERROR: _read_failed}  # noqa: RUF012

    def __init__(self, prefix: str, names: Sequence[str]) -> None:
        parts: list[bytes] = []
        for name in names:
            path = (prefix + name).encode()
            parts += (_PART.pack(_GET, 0, -1, len(path)), path, b"\0")
        super().__init__(parts, len(names))


class WatchMode:
    """The modes of a persistent watch, and the numbers that removeWatches has for them since
    ZooKeeper 3.9.
    """

    NODE = 0
    TREE = 1
    REMOVE: Final[dict[int, int]] = {NODE: 4, TREE: 5}


@dataclass(frozen=True, slots=True)
class AddWatch:
    """Set a persistent watch, which stays until it is removed or the connection ends."""

    path: str
    mode: int
    type = 106

    def serialize(self) -> bytes:
        return write_string(self.path) + _INT.pack(self.mode)

    @staticmethod
    def deserialize(buffer: bytes, offset: int) -> bool:
        return True


class RemoveWatches(AddWatch):
    """Remove this session's watches of a path; ``mode`` is a value of ``WatchMode.REMOVE``."""

    __slots__ = ()
    type = 18


# -- packing ---------------------------------------------------------------------------------------


def _packed_entry(entry: ACL) -> bytes:
    return _INT.pack(entry.perms) + write_string(entry.id.scheme) + write_string(entry.id.id)


def _operation(op: Operation, server_path: ServerPath, acl: bytes) -> tuple[bytes, ...]:
    if isinstance(op, (Delete, Check)):
        kind = _DELETE if isinstance(op, Delete) else _CHECK
        path = server_path(op.path, False).encode()
        return _PART.pack(kind, 0, -1, len(path)), path, _INT.pack(op.version)
    if isinstance(op, Create):
        path = server_path(op.path, op.sequential).encode()
        head = _PART.pack(_CREATE, 0, -1, len(path))
        flags = (EPHEMERAL if op.ephemeral else 0) | (SEQUENTIAL if op.sequential else 0)
        return head, path, _INT.pack(len(op.data)), op.data, acl, _INT.pack(flags)
    if isinstance(op, SetData):
        path = server_path(op.path, False).encode()
        head = _PART.pack(_SET, 0, -1, len(path))
        return head, path, _INT.pack(len(op.data)), op.data, _INT.pack(op.version)
    raise TypeError(f"{op!r} is not an operation of a multi")


def _read(one: Read, server_path: ServerPath) -> bytes:
    if not isinstance(one, (GetData, GetChildren)):
        raise TypeError(f"{one!r} is not a read of a multi_read")
    kind = _GET if isinstance(one, GetData) else _CHILDREN
    path = server_path(one.path, False).encode()
    return _PART.pack(kind, 0, -1, len(path)) + path + b"\0"
