"""What one request can ask for: the operations of a multi, and the reads of a multiRead.

An operation is a value: it may be built anywhere, kept, compared, and sent more than once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

ANY_VERSION = -1


class LateData(ABC):
    """What a znode is to hold, put together from its parts only when it is sent: what is large and made early has left the processor's
    cache by then, and is there twice while it waits. It must be the same each time, on any thread."""

    __slots__ = ()

    @abstractmethod
    def __len__(self) -> int:
        """How many bytes it will be."""

    @abstractmethod
    def parts(self) -> Sequence[bytes]:
        """The bytes, one part after the other."""

    def __bytes__(self) -> bytes:
        return b"".join(self.parts())


@dataclass(frozen=True, slots=True)
class Create:
    """Create a znode. With ``sequential`` the server appends ten digits to ``path``. Result in a multi: the path made."""

    path: str
    data: bytes | LateData = b""
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
